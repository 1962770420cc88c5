// Attention over the columns of each query group, for any GPU since Ampere; see attention_sm80.cuh.
#include "attention_sm80.cuh"

#define COLUMN_SPARSE(NAME, D)                                                                                       \
  LAUNCH(NAME, 128, (Layout<D, kColumns>::kShared), kQueries, 0)                                                     \
  extern "C" __global__ void __launch_bounds__(128)                                                                  \
      NAME(const bf16* q, const bf16* k, const bf16* v, void* out, float* lse, const uint32_t* bits,                 \
           long long batch_stride, long long head_stride, long long batch, long long heads, long long kv_heads,      \
           long long n, long long group, double scale, long long otype, long long bnhd, const int* query_range) {    \
    attend<D, kColumns>(Attention{q, k, v, out, lse, nullptr, bits, batch_stride, head_stride,                       \
                              static_cast<int>(batch), static_cast<int>(heads), static_cast<int>(kv_heads),          \
                              static_cast<int>(n), static_cast<int>(group), static_cast<float>(scale) * kLog2e,      \
                              static_cast<int>(otype), bnhd != 0, 0, 0, query_range});                               \
  }

COLUMN_SPARSE(columnsparse_sm80_d64, 64)
COLUMN_SPARSE(columnsparse_sm80_d128, 128)
