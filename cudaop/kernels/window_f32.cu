// Attention over a window around each query and the first keys, in float32; see attention_f32.cuh.
#include "attention_f32.cuh"

#define WINDOW(NAME, D)                                                                                              \
  LAUNCH(NAME, kThreads, Layout<D>::kDenseBytes, kQueries, 0)                                                        \
  extern "C" __global__ void __launch_bounds__(kThreads)                                                             \
      NAME(const float* q, const float* k, const float* v, void* out, float* lse, const int* start, long long reach, \
           long long sinks, long long batch, long long heads, long long kv_heads, long long n, double scale,         \
           long long otype, long long bnhd, const int* query_range, long long dim) {                                 \
    attend<D, kWindow>(AttentionOf<float>{q, k, v, out, lse, start, nullptr, 0, 0, static_cast<int>(batch),          \
                                          static_cast<int>(heads), static_cast<int>(kv_heads), static_cast<int>(n),  \
                                          0, static_cast<float>(scale) * kLog2e, static_cast<int>(otype),            \
                                          bnhd != 0, static_cast<int>(reach), static_cast<int>(sinks), query_range}, \
                       static_cast<int>(dim));                                                                       \
  }

WINDOW(window_f32_d64, 64)
WINDOW(window_f32_d128, 128)
WINDOW(window_f32_d256, 256)
