// The k highest scores of every query group as a bitmap: exact, equal scores to the smaller key, the same on every run.
//
// A block owns one row and finds the k-th highest score by counting the scores that reach a guess. A count takes the same
// time for all scores; a histogram is slow when many are equal. Two counts give the slope for the next guess, so three to
// five guesses do where bisection takes fifteen. Each thread keeps its scores as 16-bit digits in registers, two to a
// register, and compares two at once as float16, whose order is that of its bits. float32 scores have three digits of 14,
// 14 and 4 bits, and one search for each among the scores that agree in the digits above.
//
// Rows of more than 65,536 scores do not fit into the registers of a block; the rest is read again for every count.
//
// The lower bound is memory: every score is read once. At 65,536 keys of log16 that is 128 KiB a row, 4 us at a
// multiprocessor's share of 4.3 TB/s.
#include <cuda_fp16.h>

#include "common.cuh"

constexpr int kThreads = 1024, kWarps = 32;
constexpr int kChunk = kThreads * 8;             // scores: 8 for each thread, one byte of the bitmap
constexpr int kChunks = 8;                       // that are in registers
constexpr int kAllChunks = 16;                   // of 131,072 scores
constexpr uint32_t kExcluded = 0xBC00;           // the digit of excluded scores: -1 as float16, below all others
constexpr int kFar = 8;                          // codes between two guesses from which on their slope is more than noise

// Sums adds a number over the block. It alternates between two sets of scratch words, so that one barrier is enough.
struct Sums {
  uint32_t (*scratch)[kWarps];
  int turn = 0;
  DEVICE uint32_t operator()(uint32_t x) {
    x = __reduce_add_sync(~0u, x);
    turn ^= 1;
    if (threadIdx.x % 32 == 0) scratch[turn][threadIdx.x / 32] = x;
    __syncthreads();
    return __reduce_add_sync(~0u, scratch[turn][threadIdx.x % kWarps]);
  }
};

// key is the sort key of a score: 15 bits of log16; of float32 the 32 bits of package kernel's sortKey.
DEVICE uint32_t key(uint16_t s) { return s; }
DEVICE uint32_t key(float s) {
  uint32_t b = __float_as_uint(s);
  if ((b & 0x7FFFFFFF) > 0x7F800000) return 1;   // NaN, below all others
  if (b == 0x80000000) b = 0;
  return b ^ (static_cast<int32_t>(b) < 0 ? ~0u : 0x80000000u);
}

// A Digit is a part of the key, `bits` bits from bit `shift` on.
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

  // digits packs the digits of 8 neighbouring scores into 4 words. Scores whose key differs from the prefix above the
  // digit are excluded.
  DEVICE void digits(int at, Digit d, uint32_t prefix, uint32_t (&v)[4]) const {
    const bool whole = aligned && at + 8 <= n;
    if (sizeof(S) == 2 && whole && at >= start) {  // log16 has one digit
      const uint4 x = __ldg(reinterpret_cast<const uint4*>(scores + at));
      v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
      return;
    }
    S s[8];
    if (whole) {
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(S)) / 2; i++) reinterpret_cast<uint4*>(s)[i] = __ldg(reinterpret_cast<const uint4*>(scores + at) + i);
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++) s[i] = at + i < n ? scores[at + i] : S(0);
    }
    uint32_t x[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const uint32_t k = key(s[i]);
      const int above = d.shift + d.bits;
      const bool in = at + i < n && at + i >= start && (above >= 8 * static_cast<int>(sizeof(S)) || k >> above == prefix);
      x[i] = in ? k >> d.shift & ((1u << d.bits) - 1) : kExcluded;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = x[2 * i] | x[2 * i + 1] << 16;
  }
};

// reach and match compare two digits at once: they set all bits of a half whose digit is >= bound, or == bound.
DEVICE __half2 halves(uint32_t x) { return *reinterpret_cast<__half2*>(&x); }
DEVICE uint32_t reach(uint32_t digits, uint32_t bound) { return __hge2_mask(halves(digits), halves(bound)); }
DEVICE uint32_t match(uint32_t digits, uint32_t bound) { return __heq2_mask(halves(digits), halves(bound)); }

// byte gathers the masks of 8 neighbouring scores into bits.
DEVICE uint32_t byte(uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3) {
  const uint32_t x = (m0 & 0x00020001) | (m1 & 0x00080004) | (m2 & 0x00200010) | (m3 & 0x00800040);
  return (x | x >> 16) & 0xFF;
}

// first keeps the first `room` bits of the warp, in the order of its lanes.
__device__ __noinline__ uint32_t first(uint32_t mask, int room) {
  const int lane = threadIdx.x % 32;
  int upto = __popc(mask);
  room += upto;
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) {
    const int x = __shfl_up_sync(~0u, upto, d);
    if (lane >= d) upto += x;
  }
  room -= upto;                                  // what the lanes before this one leave
  uint32_t kept = 0;
  for (; mask && room > 0; room--, mask &= mask - 1) kept |= mask & -mask;
  return kept;
}

template <class S>
DEVICE void topk(const S* scores, uint32_t* bits, const int* keep, const int* start, long long batch, long long heads,
                 long long groups, long long n, long long pitch) {
  __shared__ uint32_t scratch[2][kWarps], ties[kAllChunks * kWarps];
  Sums sum{scratch};
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, chunks = static_cast<int>(ceil_div(n, kChunk));
  const int rows = static_cast<int>(batch * heads * groups), words = static_cast<int>(ceil_div(n, 32));

  int near = 1 << 13;                            // the last row's threshold, in the first digit, and the slope there
  float slope = 0;
#pragma unroll 1
  for (int r = blockIdx.x; r < rows; r += gridDim.x) {
    const int b = r / static_cast<int>(heads * groups);
    const Row<S> row{scores + r * pitch, static_cast<int>(n), start ? max(start[b], 0) : 0, reinterpret_cast<uintptr_t>(scores + r * pitch) % 16 == 0};
    int k = min(keep[b], row.n - row.start);
    if (k <= 0) {
      for (int at = tid; at < words; at += kThreads) bits[static_cast<long long>(r) * words + at] = 0;
      continue;
    }
    // In chunk c this thread has scores c·kChunk + 8·tid and the seven after it. For each chunk a byte of `in` is the mask
    // of scores above the threshold, and a byte of `equal` that of scores equal to it.
    uint32_t in[kAllChunks / 4] = {}, equal[kAllChunks / 4] = {};
    uint32_t prefix = 0, v[kChunks][4];
    int among = row.n - row.start;               // scores that agree with the prefix
#pragma unroll
    for (int d = 0; d < kDigits<S>; d++) {
      const Digit part = digit(S(), d);
#pragma unroll
      for (int c = 0; c < kChunks; c++) {
        if (c < chunks) row.digits(c * kChunk + tid * 8, part, prefix, v[c]);
        else v[c][0] = v[c][1] = v[c][2] = v[c][3] = kExcluded * 0x10001;
      }
      const auto count = [&](uint32_t guess) {
        guess *= 0x10001;
        uint32_t masks = 0;                      // a mask is -1 in each half: the sum is -(low + 65536·(high - low))
#pragma unroll
        for (int c0 = 0; c0 < kChunks; c0 += 4) {
          if (c0 >= chunks) continue;            // four chunks at a time: a branch for each costs more
#pragma unroll
          for (int c = c0; c < c0 + 4; c++) masks += reach(v[c][0], guess) + reach(v[c][1], guess) + reach(v[c][2], guess) + reach(v[c][3], guess);
        }
#pragma unroll 1
        for (int c = kChunks; c < chunks; c++) {
          uint32_t w[4];
          row.digits(c * kChunk + tid * 8, part, prefix, w);
          masks += reach(w[0], guess) + reach(w[1], guess) + reach(w[2], guess) + reach(w[3], guess);
        }
        const uint32_t low = -masks & 0xFFFF;
        return static_cast<int>(sum(2 * low + (static_cast<int32_t>(-masks - low) >> 16)));
      };
      // The k-th highest digit is the largest one that at least k scores reach: threshold <= it < limit.
      int threshold = 0, limit = 1 << part.bits, reached = among, over = 0;
      // Neighbouring rows are alike: the search for the first digit starts at the threshold of the row before. Lower digits
      // are spread evenly.
      int last = 0, last_count = among;
      float rate = static_cast<float>(among) / limit;    // scores for each step of the digit
      int guess = d == 0 ? near : static_cast<int>((among - k) / rate);
      if (d == 0 && slope > 0) rate = slope;
      guess = min(max(guess, 1), limit - 1);
#pragma unroll 1
      for (int pass = 1;; pass++) {
        const int c = count(guess);
        if (c >= k) threshold = guess, reached = c;
        else limit = guess, over = c;
        if (limit - threshold == 1) break;
        if ((d > 0 || pass > 1) && abs(guess - last) >= kFar && c != last_count) rate = static_cast<float>(last_count - c) / static_cast<float>(guess - last);
        last = guess, last_count = c;
        // Every fourth guess is the middle of the interval, which bounds the number of guesses.
        guess = pass % 4 == 0 ? (threshold + limit) / 2 : static_cast<int>(floorf(fminf(fmaxf(guess + (c - k) / rate, 0.f), 65536.f)));
        guess = min(max(guess, threshold + 1), limit - 1);
      }
      if (d == 0) near = threshold, slope = rate;
      k -= over, among = reached - over;
      const uint32_t above = prefix, bound = static_cast<uint32_t>(threshold) * 0x10001;
      prefix = prefix << part.bits | threshold;
#pragma unroll
      for (int c = 0; c < kAllChunks; c++) {
        if (c >= chunks) continue;
        uint32_t w[4];
        if (c < kChunks) {
#pragma unroll
          for (int i = 0; i < 4; i++) w[i] = v[c % kChunks][i];
        } else {
          row.digits(c * kChunk + tid * 8, part, above, w);
        }
        const uint32_t same = byte(match(w[0], bound), match(w[1], bound), match(w[2], bound), match(w[3], bound));
        const uint32_t most = byte(reach(w[0], bound), reach(w[1], bound), reach(w[2], bound), reach(w[3], bound));
        in[c / 4] |= (most ^ same) << (8 * (c % 4));
        if (d == kDigits<S> - 1) equal[c / 4] |= same << (8 * (c % 4));
      }
    }
    // The first k of the equal scores are selected. They are counted in cells of a chunk and a warp, in the order of keys.
    if (k < among) {
#pragma unroll
      for (int c = 0; c < kAllChunks; c++) {
        if (c >= chunks) continue;
        const uint32_t total = __reduce_add_sync(~0u, __popc(equal[c / 4] >> (8 * (c % 4)) & 0xFF));
        if (lane == 0) ties[c * kWarps + warp] = total;
      }
      __syncthreads();
      int mine = 0;                              // as many cells for each lane as there are chunks
      for (int i = 0; i < chunks; i++) mine += ties[lane * chunks + i];
      int upto = mine;
#pragma unroll
      for (int d = 1; d < 32; d <<= 1) {
        const int x = __shfl_up_sync(~0u, upto, d);
        if (lane >= d) upto += x;
      }
      // One lane has the cell with the k-th of them. All scores of the cells before it and the first `room` of its own are
      // selected.
      const int owner = __ffs(__ballot_sync(~0u, upto >= k)) - 1;
      int cell = lane * chunks, room = k - (upto - mine);
      if (lane == owner)
        while (room > static_cast<int>(ties[cell])) room -= ties[cell++];
      cell = __shfl_sync(~0u, cell, owner), room = __shfl_sync(~0u, room, owner);
#pragma unroll
      for (int c = 0; c < kAllChunks; c++) {
        uint32_t mask = equal[c / 4] >> (8 * (c % 4)) & 0xFF;
        if (c * kWarps + warp > cell) mask = 0;
        if (c * kWarps + warp == cell) mask = first(mask, room);
        in[c / 4] |= mask << (8 * (c % 4));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kAllChunks / 4; i++) in[i] |= equal[i];
    }
    uint8_t* out = reinterpret_cast<uint8_t*>(bits + static_cast<long long>(r) * words);
#pragma unroll
    for (int c = 0; c < kAllChunks; c++) {
      const int at = c * kThreads + tid;
      if (at < words * 4) out[at] = static_cast<uint8_t>(in[c / 4] >> (8 * (c % 4)));
    }
  }
}

#define TOPK(NAME, S)                                                                                                \
  LAUNCH(NAME, kThreads, 0, 1, 1)                                                                                    \
  extern "C" __global__ void __launch_bounds__(kThreads, 1)                                                          \
      NAME(const S* scores, uint32_t* bits, const int* keep, const int* start, long long batch, long long heads,     \
           long long groups, long long n, long long pitch) {                                                         \
    topk<S>(scores, bits, keep, start, batch, heads, groups, n, pitch);                                              \
  }

TOPK(grouptopk_log16, uint16_t)
TOPK(grouptopk_f32, float)
