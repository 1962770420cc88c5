// The range of queries that selected rows need.
#include "common.cuh"

constexpr int kThreads = 256;

// queryrange: rows [R] int32 selects tokens, an entry b*N+i stands for token i of batch row b. out [2] int32 is the range
// [out[0], out[1]) of the selected tokens over all batch rows, [0, 0) if there is none. Entries outside [0, B*N) select
// nothing. One block.
LAUNCH(queryrange, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    queryrange(const int* rows, int* out, long long R, long long B, long long N) {
  __shared__ int first, end;
  if (threadIdx.x == 0) first = static_cast<int>(N), end = 0;
  __syncthreads();
  for (long long r = threadIdx.x; r < R; r += kThreads) {
    if (rows[r] < 0 || rows[r] >= B * N) continue;
    const int token = static_cast<int>(rows[r] % N);
    atomicMin(&first, token);
    atomicMax(&end, token + 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    out[0] = min(first, end);
    out[1] = end;
  }
}
