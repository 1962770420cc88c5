// Attention over cached keys in float32, for head dimensions up to 256: the items of cached.cuh with the products of
// attention_f32.cuh.
#pragma once

#include "attention_f32.cuh"
#include "cached.cuh"

static_assert(kBlock == kThreads && kKeys == kTile);

template <int D>
struct CachedLayout {                            // in floats, after the operands of attention_f32.cuh
  static constexpr int kMembers = Layout<D>::kRings;             // [kTile] integers
  static constexpr int kQueryRows = kMembers + kTile;            // [kQueries] integers
  static constexpr int kTops = kQueryRows + kQueries;            // [kQueries] pairs
  static constexpr int kTotals = kTops + 2 * kQueries;
  static constexpr int kOutRows = kTotals + 2 * kQueries;        // [kQueries] of 8 bytes
  static constexpr int kLast = kOutRows + 2 * kQueries;
  static constexpr int kBytes = 4 * (kLast + 4);
};

template <int D>
DEVICE void attend_cached(const CachedOf<float>& a, int dim) {
  using L = Layout<D>;
  using C = CachedLayout<D>;
  extern __shared__ float memory[];
  float *p = memory + L::kP, *values = memory + L::kV;
  uint32_t *keys = reinterpret_cast<uint32_t*>(memory + L::kKeys), *members = reinterpret_cast<uint32_t*>(memory + C::kMembers);
  int* query_rows = reinterpret_cast<int*>(memory + C::kQueryRows);
  float2* tops = reinterpret_cast<float2*>(memory + C::kTops);
  long long* out_rows = reinterpret_cast<long long*>(memory + C::kOutRows);
  const int tid = threadIdx.x, x = tid % 16, y = tid / 16, used = (dim + 63) / 64 * 64;

  Work<kQueries, float> work(a);
  const bool listed = work.listed;
  Segment s;
#pragma unroll 1
  while (work.next(s)) {
    const Rows rows(work, s);
    const int live = rows.live<kQueries>();
    const long long kv = (static_cast<long long>(s.batch) * a.kv_heads + s.unit * a.share / (a.heads / a.kv_heads)) * a.n * dim;
    const float *q = a.q + (static_cast<long long>(s.batch) * a.heads + s.unit * a.share) * a.rows * dim, *k = a.k + kv, *v = a.v + kv;
    const KeySpan span(a, s.batch);
    if (tid < kQueries) {
      query_rows[tid] = tid < live ? rows.head(tid) * a.rows + rows.query(tid) : 0;
      if (tid < live) out_rows[tid] = a.out_row(s.batch, s.unit * a.share + rows.head(tid), rows.query(tid));
    }
    int bit[4], at[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int r = 4 * y + i;
      bit[i] = listed && r < live ? rows.member(r, a.group, a.width) : 0;
      at[i] = a.position(rows.query(r));
    }

    float o[4][D / 16] = {}, top[4], sum[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) top[i] = kLowest;
#pragma unroll 1
    for (int t = 0; t < s.count; t++) {
      int count = kTile;
      const int from = listed ? 0 : span.tile(s.at + t, count);
      __syncthreads();                           // the last tile has been read
      if (tid < kTile) {
        const long long i = static_cast<long long>(s.list) * a.capacity + (s.at + t) * kTile + tid;
        keys[tid] = listed ? __ldg(a.keys + i) : tid < count ? from + tid : kNone;
        if (listed) members[tid] = __ldg(a.members + i);
      }
      const auto row_of = [&](const float* heads, int r) { return keys[r] != kNone ? heads + static_cast<long long>(keys[r]) * dim : nullptr; };
      float w[4][4];
      products(w, memory + L::kQ, memory + L::kK, dim,
               [&](int r) { return r < live ? q + static_cast<long long>(query_rows[r]) * dim : nullptr; }, [&](int r) { return row_of(k, r); });
      float shrink[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const int r = 4 * x + j, key = from + r;
          const bool sees = listed ? members[r] >> bit[i] & 1 : r < count && (key < a.sinks || abs(at[i] - key) <= a.reach);
          if (!sees) w[i][j] = -CUDART_INF_F;
        }
        const float m = row_max(fmaxf(top[i], fmaxf(fmaxf(w[i][0], w[i][1]), fmaxf(w[i][2], w[i][3]))));
        shrink[i] = exp2f((top[i] - m) * a.scale_log2);
        top[i] = m;
        sum[i] *= shrink[i];
#pragma unroll
        for (int j = 0; j < 4; j++) {
          w[i][j] = exp2f((w[i][j] - m) * a.scale_log2);
          sum[i] += w[i][j];
        }
      }
      if (!a.out) continue;
#pragma unroll
      for (int j = 0; j < 4; j++) *reinterpret_cast<float4*>(p + (4 * x + j) * kQueryPitch + 4 * y) = make_float4(w[0][j], w[1][j], w[2][j], w[3][j]);
#pragma unroll
      for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int c = 0; c < D / 16; c++) o[i][c] *= shrink[i];
      }
#pragma unroll 1
      for (int row = 0; row < kTile; row += kValues) {
        __syncthreads();                         // the weights are written; the last values have been read
        for (int e = tid; e < kValues * used / 4; e += kThreads) {
          const int r = e / (used / 4), column = e % (used / 4) * 4;
          *reinterpret_cast<float4*>(values + r * D + column) = load4(row_of(v, row + r), column, dim);
        }
        __syncthreads();
#pragma unroll 4
        for (int r = 0; r < kValues; r++) {
          const float4 weights = *reinterpret_cast<const float4*>(p + (row + r) * kQueryPitch + 4 * y);
          const float f[4] = {weights.x, weights.y, weights.z, weights.w};
#pragma unroll
          for (int c = 0; c < D / 64; c++) {
            if (64 * c >= used) break;
            const float4 b = *reinterpret_cast<const float4*>(values + r * D + 64 * c + 4 * x);
#pragma unroll
            for (int i = 0; i < 4; i++) {
              o[i][4 * c] = fmaf(f[i], b.x, o[i][4 * c]), o[i][4 * c + 1] = fmaf(f[i], b.y, o[i][4 * c + 1]);
              o[i][4 * c + 2] = fmaf(f[i], b.z, o[i][4 * c + 2]), o[i][4 * c + 3] = fmaf(f[i], b.w, o[i][4 * c + 3]);
            }
          }
        }
      }
    }

    __syncthreads();                             // the operands have been read
    float* results = memory;                     // [kQueries, D]
    static_assert(kQueries * D <= L::kKeys);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float all = row_sum(sum[i]);
      if (x == 0) tops[4 * y + i] = make_float2(top[i], all);
#pragma unroll
      for (int c = 0; c < D / 64; c++)
        *reinterpret_cast<float4*>(results + (4 * y + i) * D + 64 * c + 4 * x) = make_float4(o[i][4 * c], o[i][4 * c + 1], o[i][4 * c + 2], o[i][4 * c + 3]);
    }
    __syncthreads();
    const Finish<kQueries, D, float> finish{work, s, live, dim, out_rows, reinterpret_cast<float2*>(memory + C::kTotals), reinterpret_cast<int*>(memory + C::kLast)};
    finish.run({results, reinterpret_cast<float*>(tops), 1, kQueries, D});
    __syncthreads();                             // shared memory is free
  }
}
