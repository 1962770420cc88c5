// The extent of padding.
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
