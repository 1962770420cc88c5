// Full attention with log-sum-exp, in float32; see attention_f32.cuh.
#include "attention_f32.cuh"

#define DENSE_ATTN(NAME, D)                                                                                          \
  LAUNCH(NAME, kThreads, Layout<D>::kDenseBytes, kQueries, 0)                                                        \
  extern "C" __global__ void __launch_bounds__(kThreads)                                                             \
      NAME(const float* q, const float* k, const float* v, void* out, float* lse, const int* start, long long batch, \
           long long heads, long long kv_heads, long long n, double scale, long long otype, long long bnhd,          \
           const int* query_range, long long dim) {                                                                  \
    attend<D, kDense>(AttentionOf<float>{q, k, v, out, lse, start, nullptr, 0, 0, static_cast<int>(batch),           \
                                         static_cast<int>(heads), static_cast<int>(kv_heads), static_cast<int>(n),   \
                                         0, static_cast<float>(scale) * kLog2e, static_cast<int>(otype),             \
                                         bnhd != 0, 0, 0, query_range},                                              \
                      static_cast<int>(dim));                                                                        \
  }

DENSE_ATTN(denseattn_f32_d64, 64)
DENSE_ATTN(denseattn_f32_d128, 128)
DENSE_ATTN(denseattn_f32_d256, 256)
