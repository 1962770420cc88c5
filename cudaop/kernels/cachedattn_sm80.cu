// Attention of some rows over cached keys, for any GPU since Ampere; see cached_sm80.cuh.
#include "cached_sm80.cuh"

#define CACHED_ATTN(NAME, D, PER_SM)                                                                                 \
  LAUNCH(NAME, kBlock, Layout<D>::kShared, kRows, PER_SM)                                                            \
  extern "C" __global__ void __launch_bounds__(kBlock, PER_SM) NAME(CACHED_PARAMETERS(bf16)) { attend<D>(CACHED_ARGUMENTS(bf16)); }

CACHED_ATTN(cachedattn_sm80_d64, 64, 3)
CACHED_ATTN(cachedattn_sm80_d128, 128, 2)
