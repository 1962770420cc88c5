// Attention over the columns of each query group, in float32; see attention_f32.cuh.
#include "attention_f32.cuh"

#define COLUMN_SPARSE(NAME, D)                                                                                       \
  LAUNCH(NAME, kThreads, Layout<D>::kColumnsBytes, kQueries, 0)                                                      \
  extern "C" __global__ void __launch_bounds__(kThreads)                                                             \
      NAME(const float* q, const float* k, const float* v, void* out, float* lse, const uint32_t* bits,              \
           long long batch_stride, long long head_stride, long long batch, long long heads, long long kv_heads,      \
           long long n, long long group, double scale, long long otype, long long bnhd, const int* query_range,      \
           long long dim) {                                                                                          \
    attend<D, kColumns>(AttentionOf<float>{q, k, v, out, lse, nullptr, bits, batch_stride, head_stride,              \
                                           static_cast<int>(batch), static_cast<int>(heads),                         \
                                           static_cast<int>(kv_heads), static_cast<int>(n), static_cast<int>(group), \
                                           static_cast<float>(scale) * kLog2e, static_cast<int>(otype),              \
                                           bnhd != 0, 0, 0, query_range},                                            \
                        static_cast<int>(dim));                                                                      \
  }

COLUMN_SPARSE(columnsparse_f32_d64, 64)
COLUMN_SPARSE(columnsparse_f32_d128, 128)
COLUMN_SPARSE(columnsparse_f32_d256, 256)
