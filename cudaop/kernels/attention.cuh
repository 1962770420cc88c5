// What all attention kernels share: their arguments, the expansion of column bitmaps, and the output of rows.
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
  bool bnhd;                                     // the layout of out: [B, N, H, D], else [B, H, N, D]
  int reach, sinks;                              // window: query i sees key j if |i - j| <= reach or j < sinks
  const int* query_range;                        // compute queries query_range[0] .. query_range[1]-1 of every head; null: all

  // selects reports whether some of the queries first .. limit-1 are in the query range.
  DEVICE bool selects(int first, int limit) const { return !query_range || max(first, __ldg(query_range)) < min(limit, __ldg(query_range + 1)); }

  // out_row is the index of a query's row in out.
  DEVICE long long out_row(int b, int head, int query) const {
    return static_cast<long long>(b) * heads * n + (bnhd ? query * heads + head : head * n + query);
  }
};
using Attention = AttentionOf<bf16>;

enum Pattern { kDense, kColumns, kWindow };

// QueryTile is the queries first .. limit-1 of one head that a block computes, at most COUNT of them; with BY_GROUP they
// belong to one group. A group may have fewer tiles than the grid has blocks for it: limit <= first is an empty tile.
template <int COUNT, bool BY_GROUP>
struct QueryTile {
  int group = 0, first, limit, bh;               // bh counts heads over the batch

  template <class T>
  DEVICE explicit QueryTile(const AttentionOf<T>& a) {
    if (BY_GROUP) {
      const int tiles = (a.group + COUNT - 1) / COUNT, groups = (a.n + a.group - 1) / a.group;
      group = blockIdx.x / tiles % groups, bh = blockIdx.x / tiles / groups;
      first = group * a.group + blockIdx.x % tiles * COUNT;
      limit = min(min((group + 1) * a.group, a.n), first + COUNT);
    } else {
      const int tiles = (a.n + COUNT - 1) / COUNT;
      bh = blockIdx.x / tiles, first = blockIdx.x % tiles * COUNT, limit = min(first + COUNT, a.n);
    }
  }
};

// KeyRange walks tile by tile over the keys that the queries first .. limit-1 attend to because of their position: those
// from the batch row's start on and, with a window, those before `sinks` and around the queries.
struct KeyRange {
  const int reach, sinks, low, end;
  int next;

  template <class T>
  DEVICE KeyRange(const AttentionOf<T>& a, Pattern pattern, int batch, int first, int limit)
      : reach(a.reach), sinks(a.sinks), low(pattern == kWindow ? first - a.reach : 0),
        end(pattern == kWindow ? min(a.n, max(limit + a.reach, a.sinks)) : a.n), next(a.start ? max(a.start[batch], 0) : 0) {
    skip();
  }

  // next_tile returns the first key of the next tile of at most `tile` keys, and in count their number, 0 at the end.
  DEVICE int next_tile(int tile, int& count) {
    const int from = next;
    count = max(min(end - from, tile), 0);
    next += tile;
    skip();
    return from;
  }

  // sees reports whether a query attends to a key of a window.
  DEVICE bool sees(int query, int key) const { return key < sinks || abs(query - key) <= reach; }

 private:
  DEVICE void skip() {
    if (next >= sinks) next = max(next, low);
  }
};

// ColumnRings turns the bits of neighbouring groups into ring buffers of keys in ascending order, in shared memory, a block
// of keys at a time. The THREADS that own it, numbered by tid, call open and expand together. With one group there is one
// ring; with several there are three: 0 for keys that both halves of the groups keep, 1 and 2 for those that only the first
// or the second half keeps.
constexpr int kKeyBits = 17;                     // of an entry; the bits above are the groups that keep the key
constexpr uint32_t kNoKey = ~0u;

template <int GROUPS, int THREADS>
struct ColumnRings {
  static constexpr int kRings = GROUPS == 1 ? 1 : 3;
  static constexpr int kBlockKeys = THREADS * 16;  // expanded at a time, 16 by each thread
  static constexpr int kLeft = GROUPS == 1 ? 128 : 256;  // keys of earlier blocks that a ring may hold
  static constexpr int kRing = kBlockKeys + kLeft;
  static constexpr int kRingBytes = kRing * 4, kTotalsBytes = THREADS / 32 * 4;

  const int tid, n;
  const uint32_t rings, totals;                  // kRings rings, and scratch
  int have[kRings] = {};                         // keys in each ring

  DEVICE ColumnRings(int tid, int n, uint32_t rings, uint32_t totals) : tid(tid), n(n), rings(rings), totals(totals) {}

  // open moves on to the rows of bits that start at first. groups is their number; the last item of a head may have fewer
  // than GROUPS. The rings keep their keys.
  DEVICE void open(const uint32_t* first, int groups) {
    row = reinterpret_cast<const uint16_t*>(first), rows = groups, block = 0;
    fetch();
  }

  // expand adds the columns among the next kBlockKeys keys to the rings. It returns false at the end of the rows. No ring
  // may hold more than kLeft keys before the call.
  DEVICE bool expand() {
    if (block * kBlockKeys >= n) return false;
    const int lane = tid & 31, warp = tid >> 5;
    // One word holds the counts of all rings, 10 bits each: a warp has at most 512 keys.
    uint32_t mine = 0;
#pragma unroll
    for (int r = 0; r < kRings; r++) mine |= __popc(members(r)) << (10 * r);
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
      for (uint32_t todo = members(r); todo;) {
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
  uint32_t prefetched[(GROUPS + 1) / 2] = {};    // this thread's 16 bits of each group in the next block

  DEVICE static int wrap(int at) { return at >= kRing ? at - kRing : at; }
  DEVICE static int field(uint32_t counts, int r) { return counts >> (10 * r) & 1023; }
  DEVICE uint32_t slot(int r, int at) const { return rings + r * kRingBytes + at * 4; }
  DEVICE uint32_t bits(int g) const { return prefetched[g / 2] >> (16 * (g % 2)) & 0xFFFF; }

  DEVICE void fetch() {
    const int halfwords = (n + 31) / 32 * 2, w = block * THREADS + tid;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
      const uint32_t x = w < halfwords && g < rows ? __ldg(row + static_cast<long long>(g) * halfwords + w) : 0u;
      if (g % 2 == 0) prefetched[g / 2] = x; else prefetched[g / 2] |= x << 16;
    }
  }

  // members returns a mask of this thread's 16 keys that belong to ring r.
  DEVICE uint32_t members(int r) const {
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
    uint32_t pairs[4];                           // columns 8(j+(t&1)) and 8(j+2+(t&1)), from this lane and its neighbour
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

// log_sum_exp returns that of a row, from its highest score and the sum of exp2(scale_log2·(score - highest)).
DEVICE float log_sum_exp(float highest, float sum, float scale_log2) {
  return sum > 0 ? (highest * scale_log2 + log2f(sum)) * kLn2 : -CUDART_INF_F;
}
