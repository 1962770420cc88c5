// Selection of whole blocks of keys: sums of scores over blocks, and bitmaps of blocks expanded to bitmaps of keys.
#include "common.cuh"

constexpr int kThreads = 256;

DEVICE double score_of(const void* scores, long long at, long long stype) {
  if (stype == kScoreF32) return static_cast<const float*>(scores)[at];
  const uint16_t code = static_cast<const uint16_t*>(scores)[at];
  return code == 0 ? 0 : exp2f((code - 31743) / 512.f);
}

// block_sums: for each row of scores [.., pitch], the sums of the keys first .. n-1 in blocks of `block`, the last one
// short: sums [.., width] float32, from element `at` of each row on. Sums are float64 until they are written. One block a
// row, one warp a block of keys.
LAUNCH(block_sums, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    block_sums(const void* scores, float* sums, long long n, long long first, long long block, long long pitch, long long stype,
               long long width, long long at) {
  const int lane = threadIdx.x % 32;
  const long long row = blockIdx.x;
  for (long long b = threadIdx.x / 32; first + b * block < n; b += kThreads / 32) {
    const long long limit = min(first + (b + 1) * block, n);
    double sum = 0;
    for (long long j = first + b * block + lane; j < limit; j += 32) sum += score_of(scores, row * pitch + j, stype);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (lane == 0) sums[row * width + at + b] = static_cast<float>(sum);
  }
}

// expand_blocks: bits [.., ceil(n/32)] are bitmaps of keys, made from bitmaps of blocks. The bit of key j in block b =
// j/block is that of b in a row of `selected` [.., words] for b < last, else that of b-last in a row of `generated`
// [.., generated_words]. Keys before the batch row's start get 0; start may be null. `rows` is the number of rows of a batch
// row. One CUDA block a row.
LAUNCH(expand_blocks, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    expand_blocks(const uint32_t* selected, const uint32_t* generated, const int* start, uint32_t* bits, long long rows, long long n,
                  long long block, long long last, long long words, long long generated_words) {
  const long long row = blockIdx.x, total = ceil_div(n, 32);
  const int begin = start ? start[row / rows] : 0;
  for (long long w = threadIdx.x; w < total; w += kThreads) {
    uint32_t x = 0;
    for (int i = 0; i < 32; i++) {
      const long long j = w * 32 + i, b = j / block;
      if (j >= n || j < begin) continue;
      const uint32_t word = b < last ? selected[row * words + b / 32] >> (b % 32) : generated[row * generated_words + (b - last) / 32] >> ((b - last) % 32);
      x |= (word & 1) << i;
    }
    bits[row * total + w] = x;
  }
}
