// Attention over a window around each query and the first keys, for any GPU since Ampere; see attention_sm80.cuh.
#include "attention_sm80.cuh"

#define WINDOW(NAME, D)                                                                                              \
  LAUNCH(NAME, 128, (Layout<D, kWindow>::kShared), kQueries, 0)                                                      \
  extern "C" __global__ void __launch_bounds__(128)                                                                  \
      NAME(const bf16* q, const bf16* k, const bf16* v, void* out, float* lse, const int* start, long long reach,    \
           long long sinks, long long batch, long long heads, long long kv_heads, long long n, double scale,         \
           long long otype, long long bnhd, const int* query_range) {                                                \
    attend<D, kWindow>(Attention{q, k, v, out, lse, start, nullptr, 0, 0, static_cast<int>(batch),                   \
                                 static_cast<int>(heads), static_cast<int>(kv_heads), static_cast<int>(n), 0,        \
                                 static_cast<float>(scale) * kLog2e, static_cast<int>(otype), bnhd != 0,             \
                                 static_cast<int>(reach), static_cast<int>(sinks), query_range});                    \
  }

WINDOW(window_sm80_d64, 64)
WINDOW(window_sm80_d128, 128)
