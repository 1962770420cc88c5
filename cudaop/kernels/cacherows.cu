// The rows of a step take their places in the cache.
#include "common.cuh"

constexpr int kThreads = 256, kMost = 4;         // units that a thread moves

// cacherows copies x [H, M, row] to rows first[0] .. first[0]+M-1 of cache [H, N, row]. `row` is in units of 16 bytes, or of 4
// with narrow.
LAUNCH(cacherows, kThreads, 0, kThreads * kMost, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    cacherows(const void* x, void* cache, const int* first, long long H, long long M, long long N, long long row, long long narrow) {
  const long long units = M * row, items = ceil_div(units, kThreads * kMost), head = blockIdx.x / items;
  const long long begin = blockIdx.x % items * kThreads * kMost + threadIdx.x, from = head * units, to = (head * N + __ldg(first)) * row;
#pragma unroll
  for (int i = 0; i < kMost; i++) {
    const long long at = begin + i * kThreads;
    if (at >= units) break;
    if (narrow) static_cast<uint32_t*>(cache)[to + at] = static_cast<const uint32_t*>(x)[from + at];
    else static_cast<uint4*>(cache)[to + at] = static_cast<const uint4*>(x)[from + at];
  }
}
