// Attention of some rows over cached keys, in float32; see cached_f32.cuh.
#include "cached_f32.cuh"

#define CACHED_ATTN(NAME, D)                                                                                         \
  LAUNCH(NAME, kBlock, CachedLayout<D>::kBytes, kQueries, 3)                                                         \
  extern "C" __global__ void __launch_bounds__(kBlock)                                                               \
      NAME(CACHED_PARAMETERS(float), long long dim) { attend_cached<D>(CACHED_ARGUMENTS(float), static_cast<int>(dim)); }

CACHED_ATTN(cachedattn_f32_d256, 256)
