// Questions about column tables, padding masks, wanted rows and results, answered with a few numbers.
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

// span finds which tokens rows [R] int32 ask for, an entry b*N+i for token i of batch row b: from out[0] to out[1]-1, over
// all batch rows; from 0 to -1 if for none. Entries that are no token of B rows ask for nothing. One block.
LAUNCH(span, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads) span(const int* rows, int* out, long long R, long long B, long long N) {
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

constexpr int kDigested = 64 * kThreads;  // elements of a block

// digest adds to *sum a number made of the bits of x, n elements of 2 bytes, and of where they stand. Tensors with the same
// number are the same, but for one chance in 2^64. Sums of integers do not depend on their order.
LAUNCH(digest, kThreads, 0, kDigested, 0)
extern "C" __global__ void __launch_bounds__(kThreads) digest(const uint16_t* x, unsigned long long* sum, long long n) {
  const long long first = static_cast<long long>(blockIdx.x) * kDigested, end = min(first + kDigested, n);
  unsigned long long mine = 0;
  for (long long i = first + threadIdx.x; i < end; i += kThreads) {
    unsigned long long z = (static_cast<unsigned long long>(i) << 16 | x[i]) + 0x9E3779B97F4A7C15ull;  // as SplitMix64 mixes
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    mine += z ^ z >> 31;
  }
  __shared__ unsigned long long whole;
  if (threadIdx.x == 0) whole = 0;
  __syncthreads();
  atomicAdd(&whole, mine);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(sum, whole);
}
