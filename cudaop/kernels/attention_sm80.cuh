// Attention for any GPU since Ampere and any group size: full attention, attention over a window, and over each group's
// columns.
//
// A block of four warps works on up to 64 queries, 16 for each warp; with columns they belong to one group. Tiles of 64
// keys and values are copied row by row into one of two stages while the other is in use. Queries, scores and weights
// stay in registers: the layout of an accumulator is that of the next product's left operand.
//
// On Hopper mma.sync reaches at most about two thirds of the rate of wgmma, which attention_sm90.cuh uses.
#pragma once

#include "attention.cuh"

constexpr int kQueries = 64, kTile = 64;

using KeyColumns = ColumnRings<1, 128>;

template <int D, Pattern PATTERN>
struct Layout {
  static constexpr int kTileBytes = kTile * D * 2;
  static constexpr int kV = 2 * kTileBytes;      // two stages of each
  static constexpr int kRings = kV + 2 * kTileBytes;
  static constexpr int kTotals = kRings + (PATTERN == kColumns ? KeyColumns::kRingBytes : 0);
  static constexpr int kShared = kTotals + KeyColumns::kTotalsBytes + 128;
};

template <int D, Pattern PATTERN>
DEVICE void attend(const Attention& a) {
  using L = Layout<D, PATTERN>;
  constexpr bool SPARSE = PATTERN == kColumns;
  extern __shared__ uint8_t memory[];
  const uint32_t base = (smem_address(memory) + 127) & ~127u;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;

  const QueryTile<kQueries, PATTERN == kColumns> tile(a);
  const int group = tile.group, first = tile.first, limit = tile.limit, bh = tile.bh;
  if (first >= limit || !a.selects(first, limit)) return;
  const int batch = bh / a.heads, head = bh % a.heads;
  const long long kv = (static_cast<long long>(batch) * a.kv_heads + head / (a.heads / a.kv_heads)) * a.n * D;
  const bf16* q = a.q + static_cast<long long>(bh) * a.n * D;

  const int row = first + warp * 16 + (lane >> 2);
  uint32_t qf[D / 16][4];
#pragma unroll
  for (int i = 0; i < D / 16; i++) {
#pragma unroll
    for (int x = 0; x < 4; x++) {
      const int r = row + 8 * (x & 1), c = 16 * i + 8 * (x >> 1) + 2 * (lane & 3);
      qf[i][x] = r < limit ? *reinterpret_cast<const uint32_t*>(q + static_cast<long long>(r) * D + c) : 0u;
    }
  }

  const uint32_t* bits = SPARSE ? a.bits + batch * a.batch_stride + head * a.head_stride + static_cast<long long>(group) * ((a.n + 31) / 32) : nullptr;
  KeyColumns columns(tid, SPARSE ? a.n : 0, base + L::kRings, base + L::kTotals);
  columns.open(bits, SPARSE ? 1 : 0);
  KeyRange range(a, PATTERN, batch, first, limit);

  // fetch starts the copies of the next tile and returns its number of keys; without columns, `from` becomes the first.
  const auto fetch = [&](int stage, int& from) {
    int count;
    if (SPARSE) {
      while (columns.have[0] < kTile && columns.expand()) {}
      count = min(columns.have[0], kTile);
    } else {
      from = range.next_tile(kTile, count);
    }
    if (count > 0) {
#pragma unroll
      for (int i = 0; i < kTile / 16; i++) {
        const int r = (tid >> 3) + 16 * i;
        const bool live = r < count;
        const uint32_t key = !live ? 0 : SPARSE ? columns.entry<0>(r) : from + r;
        const uint32_t to = base + stage * L::kTileBytes + swizzled(r, tid & 7);
#pragma unroll
        for (int slab = 0; slab < D / 64; slab++) {
          const long long at = kv + static_cast<long long>(key) * D + slab * 64 + (tid & 7) * 8;
          copy16(to + slab * kTile * 128, a.k + at, live);
          copy16(to + L::kV + slab * kTile * 128, a.v + at, live);
        }
      }
      if (SPARSE) columns.drop<0>(kTile);
    }
    copies_commit();
    return count;
  };

  float o[D / 2] = {}, max0 = kLowest, max1 = kLowest, sum0 = 0, sum1 = 0;
  int from = 0, following_from = 0, count = fetch(0, from);
#pragma unroll 1
  for (int stage = 0; count > 0; stage ^= 1) {
    const int following = fetch(stage ^ 1, following_from);
    copies_wait<1>();
    __syncthreads();

    const uint32_t k = base + stage * L::kTileBytes, v = k + L::kV;
    float s[kTile / 2] = {};
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
#pragma unroll
      for (int j = 0; j < kTile / 16; j++) {
        uint32_t b[4];                           // keys 16j .. 16j+15
        const int r = 16 * j + (lane & 7) + (lane >> 4) * 8, c = 2 * i + (lane >> 3 & 1);
        ldmatrix(b, k + (c >> 3) * kTile * 128 + swizzled(r, c & 7));
        mma(&s[8 * j], qf[i], b[0], b[1]);
        mma(&s[8 * j + 4], qf[i], b[2], b[3]);
      }
    }
    if (count < kTile) {
#pragma unroll
      for (int i = 0; i < kTile / 2; i++)
        if (8 * (i / 4) + 2 * (lane & 3) + (i & 1) >= count) s[i] = -CUDART_INF_F;
    }
    if (PATTERN == kWindow) {
#pragma unroll
      for (int i = 0; i < kTile / 2; i++)
        if (!range.sees(row + 4 * (i & 2), from + 8 * (i / 4) + 2 * (lane & 3) + (i & 1))) s[i] = -CUDART_INF_F;
    }

    float m0 = max0, m1 = max1;
#pragma unroll
    for (int j = 0; j < kTile / 8; j++) {
      m0 = fmaxf(m0, fmaxf(s[4 * j], s[4 * j + 1]));
      m1 = fmaxf(m1, fmaxf(s[4 * j + 2], s[4 * j + 3]));
    }
    m0 = quad_max(m0), m1 = quad_max(m1);
    const float r0 = exp2_approx((max0 - m0) * a.scale_log2), r1 = exp2_approx((max1 - m1) * a.scale_log2);
    const float b0 = m0 * a.scale_log2, b1 = m1 * a.scale_log2;
    max0 = m0, max1 = m1, sum0 *= r0, sum1 *= r1;
#pragma unroll
    for (int j = 0; j < D / 8; j++) o[4 * j] *= r0, o[4 * j + 1] *= r0, o[4 * j + 2] *= r1, o[4 * j + 3] *= r1;
#pragma unroll
    for (int j = 0; j < kTile / 8; j++) {
      s[4 * j] = exp2_approx(fmaf(s[4 * j], a.scale_log2, -b0)), s[4 * j + 1] = exp2_approx(fmaf(s[4 * j + 1], a.scale_log2, -b0));
      s[4 * j + 2] = exp2_approx(fmaf(s[4 * j + 2], a.scale_log2, -b1)), s[4 * j + 3] = exp2_approx(fmaf(s[4 * j + 3], a.scale_log2, -b1));
      sum0 += s[4 * j] + s[4 * j + 1], sum1 += s[4 * j + 2] + s[4 * j + 3];
    }
#pragma unroll
    for (int i = 0; i < kTile / 16; i++) {
      const uint32_t p[4] = {pack(s[8 * i], s[8 * i + 1]), pack(s[8 * i + 2], s[8 * i + 3]), pack(s[8 * i + 4], s[8 * i + 5]), pack(s[8 * i + 6], s[8 * i + 7])};
#pragma unroll
      for (int j = 0; j < D / 16; j++) {
        uint32_t b[4];                           // columns 16j .. 16j+15
        const int r = 16 * i + (lane & 15), c = 2 * j + (lane >> 4);
        ldmatrix_transposed(b, v + (c >> 3) * kTile * 128 + swizzled(r, c & 7));
        mma(&o[8 * j], p, b[0], b[1]);
        mma(&o[8 * j + 4], p, b[2], b[3]);
      }
    }
    __syncthreads();                             // the stage is empty
    count = following, from = following_from;
  }

  sum0 = quad_sum(sum0), sum1 = quad_sum(sum1);
  const long long at = static_cast<long long>(bh) * a.n + row;
  store_row<D>(a.out, a.out_row(batch, head, row) * D, a.otype, o, sum0 > 0 ? 1 / sum0 : 0, lane & 3, row < limit);
  store_row<D>(a.out, a.out_row(batch, head, row + 8) * D, a.otype, o + 2, sum1 > 0 ? 1 / sum1 : 0, lane & 3, row + 8 < limit);
  if (a.lse && (lane & 3) == 0) {
    if (row < limit) a.lse[at] = log_sum_exp(max0, sum0, a.scale_log2);
    if (row + 8 < limit) a.lse[at + 8] = log_sum_exp(max1, sum1, a.scale_log2);
  }
}
