// Full attention with log-sum-exp, in float32; see attention_f32.cuh.
#include "attention_f32.cuh"

#define DENSE(NAME, D)                                                                                               \
  LAUNCH(NAME, kThreads, Layout<D>::kDenseBytes, kQueries, 0)                                                        \
  extern "C" __global__ void __launch_bounds__(kThreads)                                                             \
      NAME(const float* q, const float* k, const float* v, void* out, float* lse, const int* start, long long batch, \
           long long heads, long long kv_heads, long long n, double scale, long long otype, long long by_tokens,     \
           const int* span, long long dim) {                                                                         \
    attend<D, kDense>(AttentionOf<float>{q, k, v, out, lse, start, nullptr, 0, 0, static_cast<int>(batch),           \
                                         static_cast<int>(heads), static_cast<int>(kv_heads), static_cast<int>(n),   \
                                         0, static_cast<float>(scale) * kLog2e, static_cast<int>(otype),             \
                                         by_tokens != 0, 0, 0, span},                                                \
                      static_cast<int>(dim));                                                                        \
  }

DENSE(dense_f32_d64, 64)
DENSE(dense_f32_d128, 128)
DENSE(dense_f32_d256, 256)
