// Scores of every column for each query group, for any GPU since Ampere and any group size: the mean over the group's
// queries i of exp2(scale·q_i·k_j - lse_i), as in scorecollect_sm90.cu. A block keeps 64 keys of one head in registers, 16
// for each warp, as left operands, and walks over the queries group by group in tiles of up to 64.
//
// q may have other rows than k: some of the sequence, of which those from .. to-1 count, in groups from the first of them on.
#include "common.cuh"

constexpr int kKeys = 64, kTile = 64;

struct Scores {
  const bf16 *q, *k;
  const float* lse;
  void* scores;
  const int* start;
  int batch, heads, kv_heads, n, group;
  float scale_log2;
  long long pitch;
  int stype;
  int rows, from, to, first;                     // of q: rows from .. to-1 count; position of row 0

  // begin and limit are the rows of a group that are no padding.
  DEVICE int begin(int g, int start) const { return max(from + g * group, start - first); }
  DEVICE int limit(int g) const { return min(from + (g + 1) * group, to); }
};

template <int D>
DEVICE void score(const Scores& a) {
  constexpr int kTileBytes = kTile * D * 2;
  extern __shared__ uint8_t memory[];
  __shared__ float weights[2][kTile];            // lse·log2(e) + log2(queries of the group); +inf removes a query
  const uint32_t base = (smem_address(memory) + 127) & ~127u;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const int blocks = (a.n + kKeys - 1) / kKeys, bh = blockIdx.x / blocks, batch = bh / a.heads, head = bh % a.heads;
  const int groups = (a.to - a.from + a.group - 1) / a.group, start = a.start ? min(max(a.start[batch], 0), a.n) : 0;
  const bf16* q = a.q + static_cast<long long>(bh) * a.rows * D;
  const float* lse = a.lse + static_cast<long long>(bh) * a.rows;
  const bf16* keys = a.k + (static_cast<long long>(batch) * a.kv_heads + head / (a.heads / a.kv_heads)) * a.n * D;

  const int key = blockIdx.x % blocks * kKeys + warp * 16 + (lane >> 2);
  uint32_t k[D / 16][4];
#pragma unroll
  for (int i = 0; i < D / 16; i++) {
#pragma unroll
    for (int x = 0; x < 4; x++) {
      const int r = key + 8 * (x & 1), c = 16 * i + 8 * (x >> 1) + 2 * (lane & 3);
      k[i][x] = r < a.n ? *reinterpret_cast<const uint32_t*>(keys + static_cast<long long>(r) * D + c) : 0u;
    }
  }

  // fetch starts the copies of the tile of queries from `first` on, all of one group.
  const auto fetch = [&](int stage, int group, int first) {
    const int limit = a.limit(group);
    if (group < groups) {
#pragma unroll
      for (int i = 0; i < kTile / 16; i++) {
        const int r = (tid >> 3) + 16 * i;
        const bool live = first + r < limit;
#pragma unroll
        for (int slab = 0; slab < D / 64; slab++)
          copy16(base + stage * kTileBytes + slab * kTile * 128 + swizzled(r, tid & 7), q + (live ? static_cast<long long>(first + r) * D + slab * 64 + (tid & 7) * 8 : 0), live);
      }
      if (tid < kTile) {
        const int query = first + tid;
        weights[stage][tid] = query >= start - a.first && query < limit ? fmaf(lse[query], kLog2e, __log2f(static_cast<float>(limit - a.begin(group, start)))) : CUDART_INF_F;
      }
    }
    copies_commit();
  };

  int group = 0, first = a.from, stage = 0;
  float sum0 = 0, sum1 = 0;
  fetch(0, 0, first);
#pragma unroll 1
  while (group < groups) {
    int next_group = group, next = first + kTile;
    if (next >= a.limit(group)) next_group++, next = a.from + next_group * a.group;
    fetch(stage ^ 1, next_group, next);
    copies_wait<1>();
    __syncthreads();
    float s[kTile / 2] = {};
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
#pragma unroll
      for (int j = 0; j < kTile / 16; j++) {
        uint32_t b[4];
        const int r = 16 * j + (lane & 7) + (lane >> 4) * 8, c = 2 * i + (lane >> 3 & 1);
        ldmatrix(b, base + stage * kTileBytes + (c >> 3) * kTile * 128 + swizzled(r, c & 7));
        mma(&s[8 * j], k[i], b[0], b[1]);
        mma(&s[8 * j + 4], k[i], b[2], b[3]);
      }
    }
#pragma unroll
    for (int j = 0; j < kTile / 8; j++) {
      const float2 w = *reinterpret_cast<const float2*>(&weights[stage][8 * j + 2 * (lane & 3)]);
      sum0 += exp2_approx(fmaf(s[4 * j], a.scale_log2, -w.x)) + exp2_approx(fmaf(s[4 * j + 1], a.scale_log2, -w.y));
      sum1 += exp2_approx(fmaf(s[4 * j + 2], a.scale_log2, -w.x)) + exp2_approx(fmaf(s[4 * j + 3], a.scale_log2, -w.y));
    }
    if (next_group != group) {
      sum0 = quad_sum(sum0), sum1 = quad_sum(sum1);
      const int mine = key + 8 * (lane & 1);
      const float x = mine >= start ? (lane & 1 ? sum1 : sum0) : 0.f;
      const long long at = (static_cast<long long>(bh) * groups + group) * a.pitch + mine;
      if ((lane & 2) == 0 && mine < a.n) {
        if (a.stype == kScoreF32) static_cast<float*>(a.scores)[at] = x;
        else static_cast<uint16_t*>(a.scores)[at] = to_log16(x);
      }
      sum0 = sum1 = 0;
    }
    __syncthreads();                             // the stage is empty
    group = next_group, first = next, stage ^= 1;
  }
}

#define SCORE_COLLECT(NAME, D)                                                                                       \
  LAUNCH(NAME, 128, 2 * kTile * D * 2 + 128, kKeys, 0)                                                               \
  extern "C" __global__ void __launch_bounds__(128)                                                                  \
      NAME(const bf16* q, const bf16* k, const float* lse, void* scores, const int* start, long long batch,          \
           long long heads, long long kv_heads, long long n, long long group, double scale, long long pitch,         \
           long long stype, long long rows, long long from, long long to, long long first) {                         \
    score<D>(Scores{q, k, lse, scores, start, static_cast<int>(batch), static_cast<int>(heads),                      \
                    static_cast<int>(kv_heads), static_cast<int>(n), static_cast<int>(group),                        \
                    static_cast<float>(scale) * kLog2e, pitch, static_cast<int>(stype), static_cast<int>(rows),      \
                    static_cast<int>(from), static_cast<int>(to), static_cast<int>(first)});                         \
  }

SCORE_COLLECT(scorecollect_sm80_d64, 64)
SCORE_COLLECT(scorecollect_sm80_d128, 128)
