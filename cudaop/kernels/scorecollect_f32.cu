// Scores of every column for each query group, in float32, as in scorecollect_sm80.cu. A block owns 64 keys of one head and
// walks over the queries group by group in tiles of up to 32. Each thread sums the weights of its 4 queries for 4 keys;
// after the last tile of a group the sums of the 8 threads that have the same keys are added.
#include "attention_f32.cuh"

struct Scores {
  const float *q, *k, *lse;
  void* scores;
  const int* start;
  int batch, heads, kv_heads, n, group;
  float scale_log2;
  long long pitch;
  int stype;
  int rows, from, to, first;                     // of q, as in scorecollect_sm80.cu
  int dim;
};

constexpr int kSums = (kDepth * (kQueryPitch + kKeyPitch));      // after the operands, in floats: [8, kTile]
constexpr int kShared = 4 * (kSums + kThreads / 16 * kTile);

DEVICE void score(const Scores& a) {
  extern __shared__ float memory[];
  float* sums = memory + kSums;
  const int tid = threadIdx.x, x = tid % 16, y = tid / 16;
  const int tiles = (a.n + kTile - 1) / kTile, bh = blockIdx.x / tiles, batch = bh / a.heads, head = bh % a.heads;
  const int from = blockIdx.x % tiles * kTile, groups = (a.to - a.from + a.group - 1) / a.group;
  const int start = a.start ? min(max(a.start[batch], 0), a.n) : 0;
  const float *q = a.q + static_cast<long long>(bh) * a.rows * a.dim, *lse = a.lse + static_cast<long long>(bh) * a.rows;
  const float* k = a.k + (static_cast<long long>(batch) * a.kv_heads + head / (a.heads / a.kv_heads)) * a.n * a.dim;
#pragma unroll 1
  for (int group = 0; group < groups; group++) {
    const int begin = max(a.from + group * a.group, start - a.first), limit = min(a.from + (group + 1) * a.group, a.to);
    float sum[4] = {};
#pragma unroll 1
    for (int first = begin; first < limit; first += kQueries) {
      float s[4][4];
      products(s, memory, memory + kDepth * kQueryPitch, a.dim,
               [&](int r) { return first + r < limit ? q + static_cast<long long>(first + r) * a.dim : nullptr; },
               [&](int r) { return from + r < a.n ? k + static_cast<long long>(from + r) * a.dim : nullptr; });
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int query = first + 4 * y + i;
        if (query >= limit) continue;
        const float all = lse[query] * kLog2e;
#pragma unroll
        for (int j = 0; j < 4; j++) sum[j] += exp2f(fmaf(s[i][j], a.scale_log2, -all));
      }
    }
    *reinterpret_cast<float4*>(sums + y * kTile + 4 * x) = make_float4(sum[0], sum[1], sum[2], sum[3]);
    __syncthreads();
    const int key = from + tid;
    if (tid < kTile && key < a.n) {
      float mean = 0;
      for (int i = 0; i < kThreads / 16; i++) mean += sums[i * kTile + tid];
      mean = key >= start && begin < limit ? mean / static_cast<float>(limit - begin) : 0.f;
      const long long at = (static_cast<long long>(bh) * groups + group) * a.pitch + key;
      if (a.stype == kScoreF32) static_cast<float*>(a.scores)[at] = mean;
      else static_cast<uint16_t*>(a.scores)[at] = to_log16(mean);
    }
    __syncthreads();                             // the sums have been read
  }
}

LAUNCH(scorecollect_f32, kThreads, kShared, kTile, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    scorecollect_f32(const float* q, const float* k, const float* lse, void* scores, const int* start, long long batch, long long heads,
              long long kv_heads, long long n, long long group, double scale, long long pitch, long long stype, long long rows,
              long long from, long long to, long long first, long long dim) {
  score(Scores{q, k, lse, scores, start, static_cast<int>(batch), static_cast<int>(heads), static_cast<int>(kv_heads), static_cast<int>(n),
               static_cast<int>(group), static_cast<float>(scale) * kLog2e, pitch, static_cast<int>(stype), static_cast<int>(rows),
               static_cast<int>(from), static_cast<int>(to), static_cast<int>(first), static_cast<int>(dim)});
}
