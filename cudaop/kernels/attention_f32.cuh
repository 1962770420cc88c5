// Attention in float32, for any GPU since Ampere, any group size and head dimensions up to 256: full attention, attention
// over a window, over each group's columns, and scores. Only sums are rounded. float32 models run on these kernels, and so
// do head dimensions that have no kernel of their own.
//
// A block of 128 threads works on up to 32 queries and walks over keys in tiles of 64. Thread (y, x) of 8 by 16 has the
// scores of 4 queries and 4 keys, and 4 columns of every 64 of the output for the same queries. Both products read their
// operands from shared memory, 4 values of each for 16 multiplications.
#pragma once

#include "attention.cuh"

constexpr int kThreads = 128, kQueries = 32, kTile = 64;
constexpr int kDepth = 32;                       // columns of a head that are in shared memory for q·k
constexpr int kValues = 16;                      // rows of v that are in shared memory

// Rows in shared memory are padded by 4 floats: float4 stay aligned, and writes spread over the banks.
constexpr int kQueryPitch = kQueries + 4, kKeyPitch = kTile + 4;

using KeyColumns = ColumnRings<1, kThreads>;

template <int D>
struct Layout {                                  // in floats; D is the head dimension rounded up to one of the kernels'
  static constexpr int kQ = 0;                   // [kDepth, kQueryPitch]
  static constexpr int kK = kQ + kDepth * kQueryPitch;      // [kDepth, kKeyPitch]
  static constexpr int kP = kK + kDepth * kKeyPitch;        // [kTile, kQueryPitch]
  static constexpr int kV = kP + kTile * kQueryPitch;       // [kValues, D]
  static constexpr int kKeys = kV + kValues * D;            // [kTile] integers
  static constexpr int kRings = kKeys + kTile;              // of ColumnRings
  static constexpr int kTotals = kRings + KeyColumns::kRing;
  static constexpr int kDenseBytes = 4 * kRings, kColumnsBytes = 4 * kTotals + KeyColumns::kTotalsBytes;
};

// load4 reads columns d .. d+3 of a row of dim elements, zeros from dim on, and zeros for a null pointer.
DEVICE float4 load4(const float* row, int d, int dim) {
  if (row == nullptr || d >= dim) return make_float4(0, 0, 0, 0);
  if (dim % 4 == 0) return *reinterpret_cast<const float4*>(row + d);
  return make_float4(row[d], d + 1 < dim ? row[d + 1] : 0.f, d + 2 < dim ? row[d + 2] : 0.f, d + 3 < dim ? row[d + 3] : 0.f);
}

// store4_transposed writes four columns of a row into a transposed tile.
DEVICE void store4_transposed(float* tile, int pitch, int d, int row, float4 x) {
  tile[d * pitch + row] = x.x, tile[(d + 1) * pitch + row] = x.y, tile[(d + 2) * pitch + row] = x.z, tile[(d + 3) * pitch + row] = x.w;
}

// products sets s[i][j] to the product of query 4y+i and key 4x+j. query(r) and key(r) are the addresses of row r of the
// block's queries and of the tile's keys, nullptr for a row that does not exist. All threads call it.
template <class Query, class Key>
DEVICE void products(float (&s)[4][4], float* q, float* k, int dim, Query query, Key key) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < 4; i++) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
  for (int d = 0; d < dim; d += kDepth) {
    __syncthreads();                             // the tiles of the step before have been read
    for (int at = threadIdx.x; at < kQueries * kDepth / 4; at += kThreads) {
      const int row = at / (kDepth / 4), column = at % (kDepth / 4) * 4;
      store4_transposed(q, kQueryPitch, column, row, load4(query(row), d + column, dim));
    }
    for (int at = threadIdx.x; at < kTile * kDepth / 4; at += kThreads) {
      const int row = at / (kDepth / 4), column = at % (kDepth / 4) * 4;
      store4_transposed(k, kKeyPitch, column, row, load4(key(row), d + column, dim));
    }
    __syncthreads();
#pragma unroll 8
    for (int c = 0; c < kDepth; c++) {
      const float4 a = *reinterpret_cast<const float4*>(q + c * kQueryPitch + 4 * y);
      const float4 b = *reinterpret_cast<const float4*>(k + c * kKeyPitch + 4 * x);
      const float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) s[i][j] = fmaf(as[i], bs[j], s[i][j]);
      }
    }
  }
}

// row_max and row_sum combine the 16 lanes that share their queries.
DEVICE float row_max(float x) {
#pragma unroll
  for (int d = 8; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
  return x;
}

DEVICE float row_sum(float x) {
#pragma unroll
  for (int d = 8; d > 0; d /= 2) x += __shfl_xor_sync(~0u, x, d);
  return x;
}

template <int D, Pattern PATTERN>
DEVICE void attend(const AttentionOf<float>& a, int dim) {
  using L = Layout<D>;
  extern __shared__ float memory[];
  float *p = memory + L::kP, *values = memory + L::kV;
  int* keys = reinterpret_cast<int*>(memory + L::kKeys);
  const int tid = threadIdx.x, x = tid % 16, y = tid / 16;

  const QueryTile<kQueries, PATTERN == kColumns> tile(a);
  const int group = tile.group, first = tile.first, limit = tile.limit, bh = tile.bh;
  if (first >= limit || !a.selects(first, limit)) return;
  const int batch = bh / a.heads, head = bh % a.heads;
  const long long kv = (static_cast<long long>(batch) * a.kv_heads + head / (a.heads / a.kv_heads)) * a.n * dim;
  const float* q = a.q + static_cast<long long>(bh) * a.n * dim;
  const float *k = a.k + kv, *v = a.v + kv;

  const uint32_t* bits = PATTERN == kColumns ? a.bits + batch * a.batch_stride + head * a.head_stride + static_cast<long long>(group) * ((a.n + 31) / 32) : nullptr;
  KeyColumns columns(tid, PATTERN == kColumns ? a.n : 0, smem_address(memory + L::kRings), smem_address(memory + L::kTotals));
  columns.open(bits, PATTERN == kColumns ? 1 : 0);
  KeyRange range(a, PATTERN, batch, first, limit);

  float o[4][D / 16] = {}, top[4], sum[4] = {};
#pragma unroll
  for (int i = 0; i < 4; i++) top[i] = kLowest;
#pragma unroll 1
  while (true) {
    int count, from = 0;
    if (PATTERN == kColumns) {
      while (columns.have[0] < kTile && columns.expand()) {}
      count = min(columns.have[0], kTile);
      if (tid < count) keys[tid] = columns.entry<0>(tid);
      columns.drop<0>(kTile);
    } else {
      from = range.next_tile(kTile, count);
    }
    if (count == 0) break;
    __syncthreads();                             // the keys are written; the last tile has been read
    const auto key = [&](int r) { return PATTERN == kColumns ? keys[r] : from + r; };

    float s[4][4];
    products(s, memory + L::kQ, memory + L::kK, dim,
             [&](int r) { return first + r < limit ? q + static_cast<long long>(first + r) * dim : nullptr; },
             [&](int r) { return r < count ? k + static_cast<long long>(key(r)) * dim : nullptr; });
    float shrink[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int r = 4 * x + j;
        if (r >= count || (PATTERN == kWindow && !range.sees(first + 4 * y + i, from + r))) s[i][j] = -CUDART_INF_F;
      }
      const float m = row_max(fmaxf(top[i], fmaxf(fmaxf(s[i][0], s[i][1]), fmaxf(s[i][2], s[i][3]))));
      shrink[i] = exp2f((top[i] - m) * a.scale_log2);
      top[i] = m;
      sum[i] *= shrink[i];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        s[i][j] = exp2f((s[i][j] - m) * a.scale_log2);
        sum[i] += s[i][j];
      }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) *reinterpret_cast<float4*>(p + (4 * x + j) * kQueryPitch + 4 * y) = make_float4(s[0][j], s[1][j], s[2][j], s[3][j]);
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
      for (int c = 0; c < D / 16; c++) o[i][c] *= shrink[i];
    }
#pragma unroll 1
    for (int row = 0; row < count; row += kValues) {
      __syncthreads();                           // the weights are written; the last values have been read
      for (int at = tid; at < kValues * D / 4; at += kThreads) {
        const int r = row + at / (D / 4), column = at % (D / 4) * 4;
        *reinterpret_cast<float4*>(values + at * 4) = load4(r < count ? v + static_cast<long long>(key(r)) * dim : nullptr, column, dim);
      }
      __syncthreads();
#pragma unroll 4
      for (int r = 0; r < kValues; r++) {
        const float4 weights = *reinterpret_cast<const float4*>(p + (row + r) * kQueryPitch + 4 * y);
        const float w[4] = {weights.x, weights.y, weights.z, weights.w};
#pragma unroll
        for (int c = 0; c < D / 64; c++) {
          const float4 b = *reinterpret_cast<const float4*>(values + r * D + 64 * c + 4 * x);
#pragma unroll
          for (int i = 0; i < 4; i++) {
            o[i][4 * c] = fmaf(w[i], b.x, o[i][4 * c]), o[i][4 * c + 1] = fmaf(w[i], b.y, o[i][4 * c + 1]);
            o[i][4 * c + 2] = fmaf(w[i], b.z, o[i][4 * c + 2]), o[i][4 * c + 3] = fmaf(w[i], b.w, o[i][4 * c + 3]);
          }
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int query = first + 4 * y + i;
    const float all = row_sum(sum[i]), factor = all > 0 ? 1 / all : 0;
    if (query >= limit) continue;
    const long long at = static_cast<long long>(bh) * a.n + query;
    if (a.lse && x == 0) a.lse[at] = log_sum_exp(top[i], all, a.scale_log2);
    const long long to = a.out_row(batch, head, query) * dim;
#pragma unroll
    for (int c = 0; c < D / 16; c++) {
      const int column = c / 4 * 64 + 4 * x + c % 4;
      if (column >= dim) continue;
      if (a.otype == kOutF32) static_cast<float*>(a.out)[to + column] = o[i][c] * factor;
      else static_cast<bf16*>(a.out)[to + column] = __float2bfloat16(o[i][c] * factor);
    }
  }
}
