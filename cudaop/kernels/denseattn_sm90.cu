// Full attention with log-sum-exp, on Hopper. The lower bound is that of the Tensor Cores: 4·N²·D·H operations.
#include "attention_sm90.cuh"

#define DENSE_ATTN(NAME, D)                                                                                          \
  LAUNCH(NAME, 384, (Config<D, 0>::kShared), kQueries, 1)                                                            \
  extern "C" __global__ void __cluster_dims__(Config<D, 0>::BLOCKS, 1, 1) __launch_bounds__(384, 1)                  \
      NAME(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,                                 \
           const __grid_constant__ TensorMap v, void* out, float* lse, const int* start, long long batch,            \
           long long heads, long long kv_heads, long long n, double scale, long long otype,                          \
           long long bnhd, const int* query_range) {                                                                 \
    attend<Config<D, 0>>(Attention{nullptr, nullptr, nullptr, out, lse, start, nullptr, 0, 0,                        \
                                   static_cast<int>(batch), static_cast<int>(heads), static_cast<int>(kv_heads),     \
                                   static_cast<int>(n), 0, static_cast<float>(scale) * kLog2e,                       \
                                   static_cast<int>(otype), bnhd != 0, 0, 0, query_range},                           \
                         Maps{&q, &k, &v});                                                                          \
  }

DENSE_ATTN(denseattn_sm90_d64, 64)
DENSE_ATTN(denseattn_sm90_d128, 128)
