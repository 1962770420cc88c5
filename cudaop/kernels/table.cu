// Questions about column tables and padding masks, answered with a few numbers.
#include "common.cuh"

constexpr int kThreads = 256;

// padding finds, for each batch row of mask [B, N] float32, the first key that is not padding (N if none) and the number
// of such keys: out [2, B] int32. One block a row.
LAUNCH(padding, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads) padding(const float* mask, int* out, long long B, long long N) {
  __shared__ int first, count;
  if (threadIdx.x == 0) first = static_cast<int>(N), count = 0;
  __syncthreads();
  const float* row = mask + blockIdx.x * N;
  for (int j = threadIdx.x; j < N; j += kThreads) {
    if (row[j] != 0.f) {
      atomicMin(&first, j);
      atomicAdd(&count, 1);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    out[blockIdx.x] = first;
    out[B + blockIdx.x] = count;
  }
}

// compare_tables adds to pairs[0] the query-key pairs that table keeps and to pairs[1] those of them that old does not.
// Both are [.., U, W] uint32; one block a group. Sums of integers do not depend on their order.
LAUNCH(compare_tables, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    compare_tables(const uint32_t* table, const uint32_t* old, unsigned long long* pairs, long long U, long long N, long long group) {
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
