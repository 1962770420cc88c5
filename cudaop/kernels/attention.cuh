// What all attention kernels share: their arguments, the expansion of column bitmaps, and how rows are written.
#pragma once

#include "common.cuh"

template <class T>
struct AttentionOf {
  const T *q, *k, *v;
  void* out;
  float* lse;
  const int* start;                              // full attention, window
  const uint32_t* bits;                          // columns
  long long batch_stride, head_stride;
  int batch, heads, kv_heads, n, group;
  float scale_log2;
  int otype;
  bool by_tokens;                                // out is [B, N, H, D], else [B, H, N, D]
  int reach, sinks;                              // window: query i sees key j if |i - j| <= reach or j < sinks
  const int* span;                               // queries span[0] .. span[1]-1 are wanted, of every head; null: all

  // wants reports whether some of the queries first .. limit-1 are wanted.
  DEVICE bool wants(int first, int limit) const { return !span || max(first, __ldg(span)) < min(limit, __ldg(span + 1)); }

  // out_row is where the row of a query stands among those of out.
  DEVICE long long out_row(int b, int head, int query) const {
    return static_cast<long long>(b) * heads * n + (by_tokens ? query * heads + head : head * n + query);
  }
};
using Attention = AttentionOf<bf16>;

enum Pattern { kDense, kColumns, kWindow };

// Stretch goes over the keys that the queries first .. limit-1 see by their position, tile by tile: those from the start on
// and, of a window, those before `sinks` and around the queries.
struct Stretch {
  const int reach, sinks, low, end;
  int next;

  template <class T>
  DEVICE Stretch(const AttentionOf<T>& a, Pattern pattern, int batch, int first, int limit)
      : reach(a.reach), sinks(a.sinks), low(pattern == kWindow ? first - a.reach : 0),
        end(pattern == kWindow ? min(a.n, max(limit + a.reach, a.sinks)) : a.n), next(a.start ? max(a.start[batch], 0) : 0) {
    skip();
  }

  // take returns the first key of the next tile, and in count how many there are; 0 behind the last.
  DEVICE int take(int tile, int& count) {
    const int from = next;
    count = max(min(end - from, tile), 0);
    next += tile;
    skip();
    return from;
  }

  // sees reports whether a query sees a key of a window.
  DEVICE bool sees(int query, int key) const { return key < sinks || abs(query - key) <= reach; }

 private:
  DEVICE void skip() {
    if (next >= sinks) next = max(next, low);
  }
};

// Columns turns the bits of neighbouring groups into rings of keys in ascending order, in shared memory, a block of keys
// at a time. The THREADS that own it, numbered by tid, call open and expand together. With one group there is one ring;
// with several there are three: 0 for keys that both halves of the groups keep, 1 and 2 for those of the first and the
// second half alone.
constexpr int kKeyBits = 17;                     // of an entry; above them, one bit for each group that keeps the key
constexpr uint32_t kNoKey = ~0u;

template <int GROUPS, int THREADS>
struct Columns {
  static constexpr int kRings = GROUPS == 1 ? 1 : 3;
  static constexpr int kBlockKeys = THREADS * 16;  // expanded at a time, 16 by each thread
  static constexpr int kLeft = GROUPS == 1 ? 128 : 256;  // what may be left in a ring of the blocks before
  static constexpr int kRing = kBlockKeys + kLeft;
  static constexpr int kRingBytes = kRing * 4, kTotalsBytes = THREADS / 32 * 4;

  const int tid, n;
  const uint32_t rings, totals;                  // kRings rings, and scratch
  int have[kRings] = {};                         // keys in each ring

  DEVICE Columns(int tid, int n, uint32_t rings, uint32_t totals) : tid(tid), n(n), rings(rings), totals(totals) {}

  // open goes to the rows of bits that start at first, of which groups exist: the last block of a head may have fewer.
  // What is in the rings stays there.
  DEVICE void open(const uint32_t* first, int groups) {
    row = reinterpret_cast<const uint16_t*>(first), rows = groups, block = 0;
    fetch();
  }

  // expand adds the next kBlockKeys keys' columns to the rings, and reports whether there were any left. No ring may
  // have more than kLeft keys before.
  DEVICE bool expand() {
    if (block * kBlockKeys >= n) return false;
    const int lane = tid & 31, warp = tid >> 5;
    // The counts of the rings are added in one word, 10 bits each: a warp has at most 512 keys.
    uint32_t mine = 0;
#pragma unroll
    for (int r = 0; r < kRings; r++) mine |= __popc(chosen(r)) << (10 * r);
    uint32_t upto = mine;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
      const uint32_t x = __shfl_up_sync(~0u, upto, d);
      if (lane >= d) upto += x;
    }
    if (lane == 31) store_shared(totals + warp * 4, upto);
    named_sync(1, THREADS);
    uint32_t t[THREADS / 32];
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) t[i] = load_shared(totals + 4 * i);
    const uint32_t first = block * kBlockKeys + tid * 16;
#pragma unroll
    for (int r = 0; r < kRings; r++) {
      int at = head[r] + have[r] + field(upto - mine, r), all = 0;
#pragma unroll
      for (int i = 0; i < THREADS / 32; i++) {
        if (i < warp) at += field(t[i], r);
        all += field(t[i], r);
      }
      at = wrap(at);
      for (uint32_t todo = chosen(r); todo;) {
        const int bit = __ffs(todo) - 1;
        todo &= todo - 1;
        uint32_t e = first + bit;
        if (GROUPS > 1) {
#pragma unroll
          for (int g = 0; g < GROUPS; g++) e |= (bits(g) >> bit & 1) << (kKeyBits + g);
        }
        store_shared(slot(r, at), e);
        at = wrap(at + 1);
      }
      have[r] += all;
    }
    block++;
    fetch();
    named_sync(1, THREADS);
    return true;
  }

  // entry returns the i-th key in ring R, or kNoKey.
  template <int R>
  DEVICE uint32_t entry(int i) const {
    return i < have[R] ? load_shared(slot(R, wrap(head[R] + i))) : kNoKey;
  }

  template <int R>
  DEVICE void drop(int count) {
    count = min(count, have[R]);
    have[R] -= count;
    head[R] = wrap(head[R] + count);
  }

 private:
  const uint16_t* row;                           // bits of the first group
  int rows, block, head[kRings] = {};
  uint32_t ahead[(GROUPS + 1) / 2] = {};         // this thread's 16 bits of each group in the next block

  DEVICE static int wrap(int at) { return at >= kRing ? at - kRing : at; }
  DEVICE static int field(uint32_t counts, int r) { return counts >> (10 * r) & 1023; }
  DEVICE uint32_t slot(int r, int at) const { return rings + r * kRingBytes + at * 4; }
  DEVICE uint32_t bits(int g) const { return ahead[g / 2] >> (16 * (g % 2)) & 0xFFFF; }

  DEVICE void fetch() {
    const int halfwords = (n + 31) / 32 * 2, w = block * THREADS + tid;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
      const uint32_t x = w < halfwords && g < rows ? __ldg(row + static_cast<long long>(g) * halfwords + w) : 0u;
      if (g % 2 == 0) ahead[g / 2] = x; else ahead[g / 2] |= x << 16;
    }
  }

  // chosen returns which of this thread's 16 keys belong to ring r.
  DEVICE uint32_t chosen(int r) const {
    if (GROUPS == 1) return bits(0);
    uint32_t first = 0, second = 0;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) (g < GROUPS / 2 ? first : second) |= bits(g);
    return r == 0 ? first & second : r == 1 ? first & ~second : second & ~first;
  }
};

// store_row writes D/4 values of one row: o[0], o[1], o[4], o[5], … are columns 2t, 2t+1, 8+2t, 8+2t+1, … for lane t of
// the four that share the row.
template <int D>
DEVICE void store_row(void* out, long long at, int otype, const float* o, float factor, int t, bool live) {
  if (otype == kOutF32) {
    float* to = static_cast<float*>(out) + at + 2 * t;
    if (live) {
#pragma unroll
      for (int j = 0; j < D / 8; j++) *reinterpret_cast<float2*>(to + 8 * j) = make_float2(o[4 * j] * factor, o[4 * j + 1] * factor);
    }
    return;
  }
  // The four lanes exchange words so that each holds 16 bytes of neighbouring columns.
#pragma unroll
  for (int j = 0; j < D / 8; j += 4) {
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = pack(o[4 * (j + i)] * factor, o[4 * (j + i) + 1] * factor);
    const bool odd = t & 1, high = t & 2;
    uint32_t pairs[4];                           // of columns 8(j+(t&1)) and 8(j+2+(t&1)), from this lane and its neighbour
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const uint32_t got = __shfl_xor_sync(~0u, odd ? w[i] : w[i + 1], 1);
      pairs[i] = odd ? got : w[i];
      pairs[i + 1] = odd ? w[i + 1] : got;
    }
    const uint32_t g0 = __shfl_xor_sync(~0u, high ? pairs[0] : pairs[2], 2), g1 = __shfl_xor_sync(~0u, high ? pairs[1] : pairs[3], 2);
    const uint4 all = high ? make_uint4(g0, g1, pairs[2], pairs[3]) : make_uint4(pairs[0], pairs[1], g0, g1);
    if (live) *reinterpret_cast<uint4*>(static_cast<bf16*>(out) + at + 8 * (j + t)) = all;
  }
}

// log_sum_exp of a row, from its highest score, the sum of exp2(scale_log2·(score - highest)), and the scale.
DEVICE float log_sum_exp(float highest, float sum, float scale_log2) {
  return sum > 0 ? (highest * scale_log2 + log2f(sum)) * kLn2 : -CUDART_INF_F;
}
