// The k highest scores of every query group as a bitmap: exact, equal scores to the smaller key, the same on every run.
//
// A block owns one row and looks for the k-th highest score by bisection: counting how many scores are above a guess
// costs the same whatever the scores are, where a histogram is slow when many are equal. Each thread keeps its scores as
// 16-bit digits in registers, two to a register, and compares two at once as float16, whose order is that of its bits.
// float32 scores take three digits of 14, 14 and 4 bits, one search each among the scores that agree so far.
//
// Rows of more than 65,536 scores do not fit into the registers of a block; the rest is read again for every count.
//
// The floor is memory: every score is read once. At 65,536 keys of log16 that is 128 KiB a row, 4 us at a
// multiprocessor's share of 4.3 TB/s; docs/gpu.md has what it takes.
#include <cuda_fp16.h>

#include "common.cuh"

constexpr int kThreads = 1024;
constexpr int kChunk = kThreads * 8;             // scores of which each thread has 8, and so one byte of the bitmap
constexpr int kChunks = 8;                       // kept in registers
constexpr int kAllChunks = 16;                   // of 131,072 scores
constexpr uint32_t kNear = 64;                   // first step of the search for the threshold

// Sums adds a number over the block. Two sets of scratch words in turn make one barrier do.
struct Sums {
  uint32_t (*scratch)[32];
  int turn = 0;
  DEVICE uint32_t operator()(uint32_t x) {
    x = __reduce_add_sync(~0u, x);
    turn ^= 1;
    if (threadIdx.x % 32 == 0) scratch[turn][threadIdx.x / 32] = x;
    __syncthreads();
    return __reduce_add_sync(~0u, scratch[turn][threadIdx.x % 32]);
  }
};

// key gives a score as an integer that sorts the same: 15 bits of log16, 32 of float32 as package kernel ranks them.
DEVICE uint32_t key(uint16_t s) { return s; }
DEVICE uint32_t key(float s) {
  uint32_t b = __float_as_uint(s);
  if ((b & 0x7FFFFFFF) > 0x7F800000) return 1;   // NaN, below all others
  if (b == 0x80000000) b = 0;
  return b ^ (static_cast<int32_t>(b) < 0 ? ~0u : 0x80000000u);
}

// A Digit is a part of the key: BITS bits from SHIFT on. Its value in the search is 1 + those bits where all bits above
// agree with the prefix found so far, and 0 for a score that is out.
struct Digit {
  int shift, bits;
};
DEVICE constexpr Digit digit(uint16_t, int) { return {0, 15}; }
DEVICE constexpr Digit digit(float, int i) { return i == 0 ? Digit{18, 14} : i == 1 ? Digit{4, 14} : Digit{0, 4}; }
template <class S> constexpr int kDigits = sizeof(S) == 2 ? 1 : 3;

template <class S>
struct Row {
  const S* scores;
  int n, start;
  bool aligned;

  // load8 gives the keys of 8 neighbouring scores, ok which of them take part.
  DEVICE void load8(int at, uint32_t (&k)[8], uint32_t& ok) const {
    ok = 0;
    S s[8];
    if (aligned && at + 8 <= n) {
      constexpr int kLoads = sizeof(S) / 2;
#pragma unroll
      for (int i = 0; i < kLoads; i++) reinterpret_cast<uint4*>(s)[i] = __ldg(reinterpret_cast<const uint4*>(scores + at) + i);
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++) s[i] = at + i < n ? scores[at + i] : S(0);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
      k[i] = key(s[i]);
      ok |= static_cast<uint32_t>(at + i < n && at + i >= start) << i;
    }
  }

  // values packs the digits of 8 scores into 4 words.
  DEVICE void values(int at, Digit d, uint32_t prefix, uint32_t (&v)[4]) const {
    if (sizeof(S) == 2 && aligned && at >= start && at + 8 <= n) {   // log16 is its own digit
      const uint4 x = __ldg(reinterpret_cast<const uint4*>(scores + at));
      v[0] = x.x + 0x10001, v[1] = x.y + 0x10001, v[2] = x.z + 0x10001, v[3] = x.w + 0x10001;
      return;
    }
    uint32_t k[8], ok;
    load8(at, k, ok);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const int above = d.shift + d.bits;
      const bool in = (ok >> i & 1) && (above >= 8 * static_cast<int>(sizeof(S)) || k[i] >> above == prefix);
      k[i] = in ? (k[i] >> d.shift & ((1u << d.bits) - 1)) + 1 : 0;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = k[2 * i] | k[2 * i + 1] << 16;
  }
};

// above adds, for both halves of a word, whether the digit is above the guess.
DEVICE __half2 above(__half2 count, uint32_t digits, uint32_t guess) {
  return __hadd2(count, __hgt2(*reinterpret_cast<__half2*>(&digits), *reinterpret_cast<__half2*>(&guess)));
}

template <class S>
DEVICE void topk(const S* scores, uint32_t* bits, const int* keep, const int* start, long long batch, long long heads,
                 long long groups, long long n, long long pitch) {
  __shared__ uint32_t scratch[2][32], ties[kAllChunks * 32];
  Sums sum{scratch};
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, chunks = static_cast<int>(ceil_div(n, kChunk));
  const int rows = static_cast<int>(batch * heads * groups), words = static_cast<int>(ceil_div(n, 32));

  uint32_t near = 1 << 13;                       // the last row's threshold, in the first digit
#pragma unroll 1
  for (int r = blockIdx.x; r < rows; r += gridDim.x) {
    const int b = r / static_cast<int>(heads * groups);
    Row<S> row{scores + r * pitch, static_cast<int>(n), start ? max(start[b], 0) : 0, reinterpret_cast<uintptr_t>(scores + r * pitch) % 16 == 0};
    if (r + static_cast<int>(gridDim.x) < rows) {  // the next row comes to L2 while this one is searched
      const char* next = reinterpret_cast<const char*>(scores + (r + gridDim.x) * pitch);
      for (int at = tid * 128; at < row.n * static_cast<int>(sizeof(S)); at += kThreads * 128) prefetch(next + at);
    }
    int k = min(keep[b], row.n - row.start);
    if (k <= 0) {
      for (int at = tid; at < words; at += kThreads) bits[static_cast<long long>(r) * words + at] = 0;
      continue;
    }
    uint32_t prefix = 0, threshold = 0, v[kChunks][4];
    // In chunk c this thread has scores c·kChunk + 8·tid and the seven after it.
#pragma unroll
    for (int d = 0; d < kDigits<S>; d++) {
      const Digit digit_d = digit(S(), d);
#pragma unroll
      for (int c = 0; c < kChunks; c++) {
        v[c][0] = v[c][1] = v[c][2] = v[c][3] = 0;
        if (c < chunks) row.values(c * kChunk + tid * 8, digit_d, prefix, v[c]);
      }
      const auto count_above = [&](uint32_t guess) {
        guess |= guess << 16;
        __half2 count[4] = {};
#pragma unroll
        for (int c = 0; c < kChunks; c++) {
          if (c < chunks) {
#pragma unroll
            for (int i = 0; i < 4; i++) count[i] = above(count[i], v[c][i], guess);
          }
        }
#pragma unroll 1
        for (int c = kChunks; c < chunks; c++) {
          uint32_t w[4];
          row.values(c * kChunk + tid * 8, digit_d, prefix, w);
#pragma unroll
          for (int i = 0; i < 4; i++) count[i] = above(count[i], w[i], guess);
        }
        const float2 f = __half22float2(__hadd2(__hadd2(count[0], count[1]), __hadd2(count[2], count[3])));
        return static_cast<int>(sum(static_cast<uint32_t>(f.x + f.y)));
      };
      // The k-th highest digit is the largest one that at least k digits reach: threshold <= it < limit. Rows near one
      // another are alike, so the search starts where the last one ended and goes from there in growing steps, until it
      // turns; then the interval is halved.
      uint32_t limit = (1u << digit_d.bits) + 1, step = d == 0 ? kNear : 0, guess = d == 0 ? near : limit / 2;
      bool first = true, upwards = false;
      threshold = 1;
#pragma unroll 1
      while (limit - threshold > 1) {
        const bool reached = count_above(guess - 1) >= k;
        (reached ? threshold : limit) = guess;
        if (!first && reached != upwards) step = 0;
        first = false, upwards = reached;
        guess = reached ? threshold + step : limit - min(step, limit);
        if (guess <= threshold || guess >= limit) guess = (threshold + limit) / 2, step = 0;
        step *= 2;
      }
      if (d == 0) near = max(threshold, 2u);
      k -= count_above(threshold);
      prefix = prefix << digit_d.bits | (threshold - 1);
    }
    // Scores above prefix are in, and the first k of those equal to it. Bytes of masks, one for each chunk.
    uint32_t in[kAllChunks / 4] = {}, equal[kAllChunks / 4] = {};
#pragma unroll
    for (int c = 0; c < kAllChunks; c++) {
      if (c >= chunks) continue;
      uint32_t above_mask = 0, equal_mask = 0;
      if (sizeof(S) == 2 && c < kChunks) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
          const uint32_t x = v[c % kChunks][i / 2] >> (16 * (i % 2)) & 0xFFFF;
          above_mask |= static_cast<uint32_t>(x > threshold) << i, equal_mask |= static_cast<uint32_t>(x == threshold) << i;
        }
      } else {
        uint32_t key8[8], ok;
        row.load8(c * kChunk + tid * 8, key8, ok);
#pragma unroll
        for (int i = 0; i < 8; i++) above_mask |= static_cast<uint32_t>(key8[i] > prefix) << i, equal_mask |= static_cast<uint32_t>(key8[i] == prefix) << i;
        above_mask &= ok, equal_mask &= ok;
      }
      in[c / 4] |= above_mask << (8 * (c % 4)), equal[c / 4] |= equal_mask << (8 * (c % 4));
      const uint32_t total = __reduce_add_sync(~0u, __popc(equal_mask));
      if (lane == 0) ties[c * 32 + warp] = total;
    }
    __syncthreads();
    if (warp == 0) {                             // exclusive sums over chunks and warps, 16 for each lane
      uint32_t total = 0;
      for (int i = 0; i < kAllChunks; i++) {
        const int at = lane * kAllChunks + i;
        const uint32_t x = at < chunks * 32 ? ties[at] : 0;
        if (at < chunks * 32) ties[at] = total;
        total += x;
      }
      uint32_t upto = total;
#pragma unroll
      for (int d = 1; d < 32; d <<= 1) {
        const uint32_t x = __shfl_up_sync(~0u, upto, d);
        if (lane >= d) upto += x;
      }
      for (int i = 0; i < kAllChunks; i++) {
        const int at = lane * kAllChunks + i;
        if (at < chunks * 32) ties[at] += upto - total;
      }
    }
    __syncthreads();
    uint8_t* out = reinterpret_cast<uint8_t*>(bits + static_cast<long long>(r) * words);
#pragma unroll
    for (int c = 0; c < kAllChunks; c++) {
      if (c >= chunks) continue;
      uint32_t mask = equal[c / 4] >> (8 * (c % 4)) & 0xFF;
      const int mine = __popc(mask);
      int upto = mine;
#pragma unroll
      for (int d = 1; d < 32; d <<= 1) {
        const int x = __shfl_up_sync(~0u, upto, d);
        if (lane >= d) upto += x;
      }
      const int room = k - static_cast<int>(ties[c * 32 + warp]) - (upto - mine);
      for (int excess = mine - max(room, 0); excess > 0; excess--) mask &= ~(0x80000000u >> __clz(mask));
      const int at = c * kThreads + tid;
      if (at < words * 4) out[at] = static_cast<uint8_t>(mask | (in[c / 4] >> (8 * (c % 4)) & 0xFF));
    }
    __syncthreads();                             // ties belongs to the next row now
  }
}

#define TOPK(NAME, S)                                                                                                \
  LAUNCH(NAME, kThreads, 0, 1, 1)                                                                                    \
  extern "C" __global__ void __launch_bounds__(kThreads, 1)                                                          \
      NAME(const S* scores, uint32_t* bits, const int* keep, const int* start, long long batch, long long heads,     \
           long long groups, long long n, long long pitch) {                                                         \
    topk<S>(scores, bits, keep, start, batch, heads, groups, n, pitch);                                              \
  }

TOPK(topk_log16, uint16_t)
TOPK(topk_f32, float)
