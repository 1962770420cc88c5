// The rows of a step take their places in the cache.
#include "common.cuh"

constexpr int kThreads = 256, kMost = 4;         // units that a thread moves

// cacherows copies a matrix of `units` from x to the cache, for each of H heads; the distances between heads are `units` and
// `pitch`, and `first` is where the matrix begins in the cache. A unit is 16 bytes, or 4 with narrow.
LAUNCH(cacherows, kThreads, 0, kThreads * kMost, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    cacherows(const void* x, void* cache, long long H, long long units, long long first, long long pitch, long long narrow) {
  const long long items = ceil_div(units, kThreads * kMost), head = blockIdx.x / items;
  const long long begin = blockIdx.x % items * kThreads * kMost + threadIdx.x, from = head * units, to = head * pitch + first;
#pragma unroll
  for (int i = 0; i < kMost; i++) {
    const long long at = begin + i * kThreads;
    if (at >= units) break;
    if (narrow) static_cast<uint32_t*>(cache)[to + at] = static_cast<const uint32_t*>(x)[from + at];
    else static_cast<uint4*>(cache)[to + at] = static_cast<const uint4*>(x)[from + at];
  }
}
