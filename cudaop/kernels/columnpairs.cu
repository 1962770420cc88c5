// Statistics of column tables.
#include "common.cuh"

constexpr int kThreads = 256;

// columnpairs adds to pairs[0] the query-key pairs that table keeps and to pairs[1] those of them that old does not.
// Both are [.., U, W] uint32; one block a group. Sums of integers do not depend on their order.
LAUNCH(columnpairs, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    columnpairs(const uint32_t* table, const uint32_t* old, unsigned long long* pairs, long long U, long long N, long long group) {
  long long words = ceil_div(N, 32), u = blockIdx.x % U;
  const uint32_t* now = table + blockIdx.x * words;
  const uint32_t* before = old + blockIdx.x * words;
  int kept = 0, added = 0;
  for (long long w = threadIdx.x; w < words; w += kThreads) {
    kept += __popc(now[w]);
    added += __popc(now[w] & ~before[w]);
  }
  __shared__ int sums[2];
  if (threadIdx.x < 2) sums[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&sums[0], kept);
  atomicAdd(&sums[1], added);
  __syncthreads();
  if (threadIdx.x < 2) {
    long long queries = min(group, N - u * group);
    atomicAdd(&pairs[threadIdx.x], static_cast<unsigned long long>(queries * sums[threadIdx.x]));
  }
}
