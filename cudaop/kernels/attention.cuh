// What all attention kernels share: their arguments, the expansion of column bitmaps, and how rows are written.
#pragma once

#include "common.cuh"

struct Attention {
  const bf16 *q, *k, *v;
  void* out;
  float* lse;
  const int* start;                              // full attention
  const uint32_t* bits;                          // sparse attention
  long long batch_stride, head_stride;
  int batch, heads, kv_heads, n, group;
  float scale_log2;
  int otype;
};

// Columns turns the bits of a block's groups into a ring of keys in ascending order, in shared memory. The 128 threads
// that own it call its methods together. With several groups, CLASS picks the keys: 0 those that both halves of the groups
// keep, 1 and 2 those of the first and the second half alone.
constexpr int kBlockKeys = 2048;                 // keys expanded at a time, 16 for each thread
constexpr int kRing = kBlockKeys + 128;          // beside what is left of the block before, less than two tiles
constexpr int kRingBytes = kRing * 4;
constexpr int kKeyBits = 17;                     // of an entry; above them, one bit for each group that keeps the key
constexpr uint32_t kNoKey = ~0u;

template <int CLASS, int GROUPS>
struct Columns {
  const uint16_t* row;                           // bits of the first group
  const int groups, n;                           // groups that exist: the last block of a head may have fewer
  const uint32_t ring, totals;                   // totals: 16 bytes of scratch
  int have = 0;                                  // keys in the ring

  DEVICE Columns(const uint16_t* row, int groups, int n, uint32_t ring, uint32_t totals)
      : row(row), groups(groups), n(n), ring(ring), totals(totals) {
    fetch();
  }

  // refill makes at least count keys available, if there are so many left.
  DEVICE void refill(int count) {
    while (have < count && block * kBlockKeys < n) expand();
  }

  // entry returns the r-th key in the ring, or kNoKey.
  DEVICE uint32_t entry(int r) const {
    if (r >= have) return kNoKey;
    return load_shared(slot(wrap(head + r)));
  }

  DEVICE void drop(int count) {
    count = min(count, have);
    have -= count;
    head = wrap(head + count);
  }

 private:
  int block = 0, head = 0;
  uint32_t ahead[(GROUPS + 1) / 2] = {};         // this thread's 16 bits of each group in the next block

  DEVICE static int wrap(int at) { return at >= kRing ? at - kRing : at; }
  DEVICE uint32_t slot(int at) const { return ring + at * 4; }
  DEVICE uint32_t bits(int g) const { return ahead[g / 2] >> (16 * (g % 2)) & 0xFFFF; }

  DEVICE void fetch() {
    const int halfwords = (n + 31) / 32 * 2, w = block * 128 + (threadIdx.x & 127);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
      const uint32_t x = w < halfwords && g < groups ? __ldg(row + static_cast<long long>(g) * halfwords + w) : 0u;
      if (g % 2 == 0) ahead[g / 2] = x; else ahead[g / 2] |= x << 16;
    }
  }

  DEVICE uint32_t chosen() const {
    if (GROUPS == 1) return bits(0);
    uint32_t first = 0, second = 0;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) (g < GROUPS / 2 ? first : second) |= bits(g);
    return CLASS == 0 ? first & second : CLASS == 1 ? first & ~second : second & ~first;
  }

  DEVICE void expand() {
    const int tid = threadIdx.x & 127, lane = tid & 31, warp = tid >> 5;
    uint32_t todo = chosen();
    const int mine = __popc(todo);
    int upto = mine;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
      const int x = __shfl_up_sync(~0u, upto, d);
      if (lane >= d) upto += x;
    }
    if (lane == 31) store_shared(totals + warp * 4, upto);
    named_sync(1, 128);
    int t[4];
#pragma unroll
    for (int i = 0; i < 4; i++) t[i] = load_shared(totals + 4 * i);
    int at = wrap(head + have + upto - mine + (warp > 0 ? t[0] : 0) + (warp > 1 ? t[1] : 0) + (warp > 2 ? t[2] : 0));
    const uint32_t first = (block * 128 + tid) * 16;
    while (todo) {
      const int bit = __ffs(todo) - 1;
      todo &= todo - 1;
      uint32_t e = first + bit;
      if (GROUPS > 1) {
#pragma unroll
        for (int g = 0; g < GROUPS; g++) e |= (bits(g) >> bit & 1) << (kKeyBits + g);
      }
      store_shared(slot(at), e);
      at = wrap(at + 1);
    }
    have += t[0] + t[1] + t[2] + t[3];
    block++;
    fetch();
    named_sync(1, 128);
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
