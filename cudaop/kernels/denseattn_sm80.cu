// Full attention with log-sum-exp, for any GPU since Ampere; see attention_sm80.cuh.
#include "attention_sm80.cuh"

#define DENSE(NAME, D)                                                                                               \
  LAUNCH(NAME, 128, (Layout<D, kDense>::kShared), kQueries, 0)                                                       \
  extern "C" __global__ void __launch_bounds__(128)                                                                  \
      NAME(const bf16* q, const bf16* k, const bf16* v, void* out, float* lse, const int* start, long long batch,    \
           long long heads, long long kv_heads, long long n, double scale, long long otype,                          \
           long long by_tokens, const int* span) {                                                                   \
    attend<D, kDense>(Attention{q, k, v, out, lse, start, nullptr, 0, 0, static_cast<int>(batch),                    \
                               static_cast<int>(heads), static_cast<int>(kv_heads), static_cast<int>(n), 0,          \
                               static_cast<float>(scale) * kLog2e, static_cast<int>(otype),                          \
                               by_tokens != 0, 0, 0, span});                                                         \
  }

DENSE(dense_sm80_d64, 64)
DENSE(dense_sm80_d128, 128)
