// Attention over cached keys for any GPU since Ampere; cached.cuh has the division of the work.
//
// A block of four warps has up to 64 rows, 16 for each warp. With 32 rows or fewer two warps share the rows, and each of them
// takes half of the keys. Tiles of keys and values are copied row by row into three stages, two of which are on the way while
// one is in use: two blocks on a multiprocessor have 128 KiB in flight, which keeps the memory of an H200 busy.
#pragma once

#include "cached.cuh"

constexpr int kRows = 64, kStages = 3, kSlice = 32;  // keys of a slice: what a warp multiplies at a time

// copy_once is copy16 for what one block reads: copies that fetch 256 bytes into the L2 cache are 7 % slower here.
DEVICE void copy_once(uint32_t to, const void* from, bool live) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(live ? 16 : 0) : "memory");
}

template <int D>
struct Layout {
  static constexpr int kTileBytes = kKeys * D * 2, kStage = 2 * kTileBytes;
  static constexpr int kMembers = kStages * kStage;
  static constexpr int kTops = kMembers + kStages * kKeys * 4;   // [2, kRows], of parts
  static constexpr int kTotals = kTops + 2 * kRows * 8;
  static constexpr int kOutRows = kTotals + kRows * 8;
  static constexpr int kLast = kOutRows + kRows * 8;
  static constexpr int kShared = kLast + 16 + 128;
  static constexpr int kPitch = D + 4;                           // of results, in floats, in the memory of stages
};

template <int D>
DEVICE void attend(const CachedOf<bf16>& a) {
  using L = Layout<D>;
  extern __shared__ uint8_t memory[];
  uint8_t* aligned = memory + (-smem_address(memory) & 127u);
  const uint32_t base = smem_address(aligned);
  float2* tops = reinterpret_cast<float2*>(aligned + L::kTops);
  long long* out_rows = reinterpret_cast<long long*>(aligned + L::kOutRows);
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;

  // Offsets of what a lane loads by ldmatrix: 8 keys and 2 chunks of k, 16 keys and a chunk of v, for each 16 columns of a slab.
  uint32_t k_offset[4], v_offset[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    k_offset[i] = swizzled((lane & 7) + (lane >> 4) * 8, 2 * i + (lane >> 3 & 1));
    v_offset[i] = swizzled(lane & 15, 2 * i + (lane >> 4));
  }

  Work<kRows, bf16> work(a);
  const bool listed = work.listed;
  Segment s;
#pragma unroll 1
  while (work.next(s)) {
    const Rows rows(work, s);
    const int live = rows.live<kRows>(), row_warps = live <= 16 ? 1 : live <= 32 ? 2 : 4, parts = row_warps == 4 ? 1 : 2;
    const int part = warp / row_warps, mine = warp % row_warps * 16 + (lane >> 2);  // and mine + 8
    const long long kv = (static_cast<long long>(s.batch) * a.kv_heads + s.unit * a.share / (a.heads / a.kv_heads)) * a.n * D;
    const bf16* q = a.q + (static_cast<long long>(s.batch) * a.heads + s.unit * a.share) * a.rows * D;
    const KeySpan span(a, s.batch);
    const uint32_t* list = listed ? a.keys + s.list * a.capacity : nullptr;
    const uint32_t* members = listed ? a.members + s.list * a.capacity : nullptr;

    uint32_t qf[D / 16][4];
#pragma unroll
    for (int x = 0; x < 4; x++) {
      const int r = mine + 8 * (x & 1);
      const bf16* row = q + (r < live ? static_cast<long long>(rows.head(r)) * a.rows + rows.query(r) : 0) * D + 8 * (x >> 1) + 2 * (lane & 3);
#pragma unroll
      for (int i = 0; i < D / 16; i++) qf[i][x] = r < live ? *reinterpret_cast<const uint32_t*>(row + 16 * i) : 0u;
    }
    const int bit0 = listed && mine < live ? rows.member(mine, a.group, a.width) : 0;
    const int bit1 = listed && mine + 8 < live ? rows.member(mine + 8, a.group, a.width) : 0;
    for (int r = tid; r < live; r += kBlock) out_rows[r] = a.out_row(s.batch, s.unit * a.share + rows.head(r), rows.query(r));
    const int at0 = a.position(rows.query(mine)), at1 = a.position(rows.query(mine + 8));

    // fetch starts the copies of the segment's tile t. Keys of lists are read one tile ahead.
    uint32_t ahead[kKeys / 16];
    const auto look = [&](int t) {
#pragma unroll
      for (int i = 0; i < kKeys / 16; i++)
        if (listed && t < s.count) ahead[i] = __ldg(list + (s.at + t) * kKeys + (tid >> 3) + 16 * i);
    };
    const auto fetch = [&](int t, int into) {
      if (t < s.count) {
        const uint32_t stage = base + into * L::kStage;
        int count = kKeys;
        const int from = listed ? 0 : span.tile(s.at + t, count);
#pragma unroll
        for (int i = 0; i < kKeys / 16; i++) {
          const int r = (tid >> 3) + 16 * i;
          const bool exists = listed ? ahead[i] != kNone : r < count;
          const long long key = kv + static_cast<long long>(!exists ? 0 : listed ? ahead[i] : from + r) * D + (tid & 7) * 8;
          const uint32_t to = stage + swizzled(r, tid & 7);
#pragma unroll
          for (int slab = 0; slab < D / 64; slab++) copy_once(to + slab * kKeys * 128, a.k + key + slab * 64, exists);
          if (!a.out) continue;
#pragma unroll
          for (int slab = 0; slab < D / 64; slab++) copy_once(to + L::kTileBytes + slab * kKeys * 128, a.v + key + slab * 64, exists);
        }
        if (listed && tid < kKeys / 4) copy_once(base + L::kMembers + (into * kKeys + tid * 4) * 4, members + (s.at + t) * kKeys + tid * 4, true);
        look(t + 1);
      }
      copies_commit();
    };

    float o[D / 2] = {}, max0 = kLowest, max1 = kLowest, sum0 = 0, sum1 = 0;
    look(0);
#pragma unroll 1
    for (int t = 1 - kStages, stage = 1; t < s.count; t++, stage = stage == kStages - 1 ? 0 : stage + 1) {
      if (t >= 0) {
        copies_wait<kStages - 2>();
        __syncthreads();                         // the tile has arrived, and the one before it has been read
      }
      fetch(t + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
      if (t < 0) continue;
      const uint32_t k = base + stage * L::kStage, v = k + L::kTileBytes;
#pragma unroll 1
      for (int slice = part; slice < kKeys / kSlice; slice += parts) {
        float x[kSlice / 2] = {};
#pragma unroll
        for (int slab = 0; slab < D / 64; slab++) {
          const uint32_t from = k + (slab * kKeys + slice * kSlice) * 128;
          uint32_t b[4][kSlice / 16][4];         // loaded together, because each takes as long as a product
#pragma unroll
          for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < kSlice / 16; j++) ldmatrix(b[i][j], from + j * 16 * 128 + k_offset[i]);
          }
#pragma unroll
          for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < kSlice / 16; j++) {
              mma(&x[8 * j], qf[4 * slab + i], b[i][j][0], b[i][j][1]);
              mma(&x[8 * j + 4], qf[4 * slab + i], b[i][j][2], b[i][j][3]);
            }
          }
        }
        const int first = slice * kSlice + 2 * (lane & 3);       // key of x[0] in the tile; x[4] has the eighth after it
        if (listed) {
#pragma unroll
          for (int j = 0; j < kSlice / 8; j++) {
            const uint32_t at = base + L::kMembers + (stage * kKeys + first + 8 * j) * 4, m = load_shared(at), n = load_shared(at + 4);
            if (!(m >> bit0 & 1)) x[4 * j] = -CUDART_INF_F;
            if (!(n >> bit0 & 1)) x[4 * j + 1] = -CUDART_INF_F;
            if (!(m >> bit1 & 1)) x[4 * j + 2] = -CUDART_INF_F;
            if (!(n >> bit1 & 1)) x[4 * j + 3] = -CUDART_INF_F;
          }
        } else {
          int count;
          const int from = span.tile(s.at + t, count);
          if (count < kKeys || a.sinks < a.n) {
#pragma unroll
            for (int i = 0; i < kSlice / 2; i++) {
              const int at = first + 8 * (i / 4) + (i & 1), key = from + at;
              if (at >= count || (key >= a.sinks && abs((i & 2 ? at1 : at0) - key) > a.reach)) x[i] = -CUDART_INF_F;
            }
          }
        }

        float m0 = max0, m1 = max1;
#pragma unroll
        for (int j = 0; j < kSlice / 8; j++) m0 = fmaxf(m0, fmaxf(x[4 * j], x[4 * j + 1])), m1 = fmaxf(m1, fmaxf(x[4 * j + 2], x[4 * j + 3]));
        m0 = quad_max(m0), m1 = quad_max(m1);
        if (__any_sync(~0u, m0 > max0 || m1 > max1)) {           // seldom, after the first keys
          const float r0 = exp2_approx((max0 - m0) * a.scale_log2), r1 = exp2_approx((max1 - m1) * a.scale_log2);
          max0 = m0, max1 = m1, sum0 *= r0, sum1 *= r1;
#pragma unroll
          for (int j = 0; j < D / 8; j++) o[4 * j] *= r0, o[4 * j + 1] *= r0, o[4 * j + 2] *= r1, o[4 * j + 3] *= r1;
        }
        const float b0 = max0 * a.scale_log2, b1 = max1 * a.scale_log2;
#pragma unroll
        for (int j = 0; j < kSlice / 8; j++) {
          x[4 * j] = exp2_approx(fmaf(x[4 * j], a.scale_log2, -b0)), x[4 * j + 1] = exp2_approx(fmaf(x[4 * j + 1], a.scale_log2, -b0));
          x[4 * j + 2] = exp2_approx(fmaf(x[4 * j + 2], a.scale_log2, -b1)), x[4 * j + 3] = exp2_approx(fmaf(x[4 * j + 3], a.scale_log2, -b1));
          sum0 += x[4 * j] + x[4 * j + 1], sum1 += x[4 * j + 2] + x[4 * j + 3];
        }
        if (!a.out) continue;
#pragma unroll
        for (int i = 0; i < kSlice / 16; i++) {
          const uint32_t p[4] = {pack(x[8 * i], x[8 * i + 1]), pack(x[8 * i + 2], x[8 * i + 3]), pack(x[8 * i + 4], x[8 * i + 5]), pack(x[8 * i + 6], x[8 * i + 7])};
#pragma unroll
          for (int slab = 0; slab < D / 64; slab++) {
            uint32_t b[4][4];
#pragma unroll
            for (int j = 0; j < 4; j++) ldmatrix_transposed(b[j], v + (slab * kKeys + slice * kSlice + 16 * i) * 128 + v_offset[j]);
#pragma unroll
            for (int j = 0; j < 4; j++) {
              mma(&o[32 * slab + 8 * j], p, b[j][0], b[j][1]);
              mma(&o[32 * slab + 8 * j + 4], p, b[j][2], b[j][3]);
            }
          }
        }
      }
    }

    sum0 = quad_sum(sum0), sum1 = quad_sum(sum1);
    copies_wait<0>();
    __syncthreads();                             // the memory of stages is free
    float* results = reinterpret_cast<float*>(aligned);
    if (part < parts) {
      const int row = part * row_warps * 16 + mine;
#pragma unroll
      for (int j = 0; j < D / 8; j++) {
        float* to = results + row * L::kPitch + 8 * j + 2 * (lane & 3);
        *reinterpret_cast<float2*>(to) = make_float2(o[4 * j], o[4 * j + 1]);
        *reinterpret_cast<float2*>(to + 8 * L::kPitch) = make_float2(o[4 * j + 2], o[4 * j + 3]);
      }
      if ((lane & 3) == 0) tops[row] = make_float2(max0, sum0), tops[row + 8] = make_float2(max1, sum1);
    }
    __syncthreads();
    const Finish<kRows, D, bf16> finish{work, s, live, D, out_rows, reinterpret_cast<float2*>(aligned + L::kTotals), reinterpret_cast<int*>(aligned + L::kLast)};
    finish.run({results, reinterpret_cast<float*>(tops), parts, row_warps * 16, L::kPitch});
    __syncthreads();                             // shared memory is free
  }
}
