// Attention over the columns of each query group, on Hopper; see attention_sm90.cuh.
#include "attention_sm90.cuh"

#define COLUMN_SPARSE(NAME, D, GROUPS)                                                                               \
  LAUNCH(NAME, 384, (Config<D, GROUPS>::kShared), kQueries, 1)                                                       \
  extern "C" __global__ void __launch_bounds__(384, 1)                                                               \
      NAME(const bf16* q, const bf16* k, const bf16* v, void* out, float* lse, const uint32_t* bits,                 \
           long long batch_stride, long long head_stride, long long batch, long long heads, long long kv_heads,      \
           long long n, long long group, double scale, long long otype, long long bnhd, const int* query_range) {    \
    attend<Config<D, GROUPS>>(Attention{q, k, v, out, lse, nullptr, bits, batch_stride, head_stride,                 \
                                        static_cast<int>(batch), static_cast<int>(heads),                            \
                                        static_cast<int>(kv_heads), static_cast<int>(n), static_cast<int>(group),    \
                                        static_cast<float>(scale) * kLog2e, static_cast<int>(otype),                 \
                                        bnhd != 0, 0, 0, query_range},                                               \
                              Maps{});                                                                               \
  }

COLUMN_SPARSE(columnsparse_sm90_d64_g128, 64, 1)
COLUMN_SPARSE(columnsparse_sm90_d64_g64, 64, 2)
COLUMN_SPARSE(columnsparse_sm90_d64_g32, 64, 4)
COLUMN_SPARSE(columnsparse_sm90_d64_g16, 64, 8)
COLUMN_SPARSE(columnsparse_sm90_d128_g128, 128, 1)
COLUMN_SPARSE(columnsparse_sm90_d128_g64, 128, 2)
COLUMN_SPARSE(columnsparse_sm90_d128_g32, 128, 4)
COLUMN_SPARSE(columnsparse_sm90_d128_g16, 128, 8)
