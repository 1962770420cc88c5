// Scores of every column for each query group, on Hopper: the mean over the group's queries i of exp2(scale·q_i·k_j -
// lse_i), with the log-sum-exp of full attention. Nothing of size N x N is stored.
//
// A block owns 192 keys of one head, 64 for each of three consumer warpgroups, and streams all queries past them. The
// product is taken as K·Qᵀ, so that the queries of a group lie along a thread's own accumulators: their sum needs no
// shared memory and no atomics, only an exchange among four lanes. Keys stay in registers as the left operand. The
// producer warpgroup copies tiles of 128 queries and, beside them, lse_i·log2(e) + log2(queries of the group), which
// makes the sum a mean; +inf takes a query out.
//
// The floor: 2·N²·D·H operations, 512 clocks for 64 keys by 128 queries at D = 128, and as many for the exponentials.
// Measured and not kept: a polynomial for one in 4 or 8 exponentials, and two products in flight for each consumer.
#include "hopper.cuh"

constexpr int kConsumers = 3, kThreads = 128 * (kConsumers + 1);
constexpr int kKeys = 64 * kConsumers, kQueries = 128, kStages = 4;

struct Scores {
  const bf16 *q, *k;
  const float* lse;
  void* scores;
  const int* start;
  int batch, heads, kv_heads, n;
  float scale_log2;
  long long pitch;
  int stype;
};

template <int D>
struct Shared {
  static constexpr int kTileBytes = kQueries * D * 2;
  static constexpr int kLse = kStages * kTileBytes;               // [kStages][kQueries]
  static constexpr int kBarriers = kLse + kStages * kQueries * 4; // full, empty [kStages]
  static constexpr int kBytes = kBarriers + 2 * kStages * 8 + 1024;
};

template <int D, int GROUP>
DEVICE void score(const Scores& a) {
  using S = Shared<D>;
  constexpr int kGroups = kQueries / GROUP;      // of a tile
  extern __shared__ uint8_t memory[];
  const uint32_t base = (smem_address(memory) + 1023) & ~1023u, full = base + S::kBarriers, empty = full + 8 * kStages;
  const int warpgroup = threadIdx.x >> 7, tid = threadIdx.x & 127, lane = tid & 31, warp = tid >> 5;
  const int blocks = (a.n + kKeys - 1) / kKeys, first = (blockIdx.x % blocks) * kKeys, tiles = (a.n + kQueries - 1) / kQueries;
  const int head = blockIdx.x / blocks % a.heads, batch = blockIdx.x / blocks / a.heads;
  const long long rows = (static_cast<long long>(batch) * a.heads + head) * a.n;
  const int start = a.start ? min(max(a.start[batch], 0), a.n) : 0;

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) barrier_init(full + 8 * i, 256), barrier_init(empty + 8 * i, 4 * kConsumers);
    barrier_init_done();
  }
  __syncthreads();
  Stage<kStages> stage;
  if (warpgroup == 0) {
    registers_lower<32>();
    const int r0 = tid >> 3;
    const char* from = reinterpret_cast<const char*>(a.q + (rows + r0) * D) + (tid & 7) * 16;
    const float* lse = a.lse + rows;
#pragma unroll 1
    for (int t = 0; t < tiles; t++) {
      const int query = t * kQueries + tid, group = query / GROUP * GROUP;
      float x = CUDART_INF_F;
      if (query >= start && query < a.n) x = fmaf(lse[query], kLog2e, __log2f(static_cast<float>(min(group + GROUP, a.n) - max(group, start))));
      barrier_wait(empty + 8 * stage.index, stage.parity ^ 1);
      const uint32_t to = base + stage.index * S::kTileBytes + swizzled(r0, tid & 7);
      const auto rows = [&](auto live) {         // a copy is a single instruction where all rows are known to exist
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
          for (int slab = 0; slab < D / 64; slab++) copy16(to + slab * kQueries * 128 + i * 2048, live(i) ? from + i * 16 * D * 2 + slab * 128 : reinterpret_cast<const char*>(a.q), live(i));
        }
      };
      if ((t + 1) * kQueries <= a.n) rows([](int) { return true; });
      else rows([&](int i) { return t * kQueries + r0 + 16 * i < a.n; });
      from += kQueries * D * 2;
      store_shared(base + S::kLse + (stage.index * kQueries + tid) * 4, __float_as_uint(x));
      barrier_arrive(full + 8 * stage.index);
      barrier_arrive_copies(full + 8 * stage.index);
      stage.next();
    }
  } else {
    registers_raise<160>();
    const int key = first + (warpgroup - 1) * 64 + warp * 16 + (lane >> 2);
    const bf16* kp = a.k + (static_cast<long long>(batch) * a.kv_heads + head / (a.heads / a.kv_heads)) * a.n * D;
    uint32_t k[D / 16][4];
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
#pragma unroll
      for (int x = 0; x < 4; x++) {
        const int row = key + 8 * (x & 1), column = 16 * i + 8 * (x >> 1) + 2 * (lane & 3);
        k[i][x] = row < a.n ? *reinterpret_cast<const uint32_t*>(kp + static_cast<long long>(row) * D + column) : 0u;
      }
    }
    // After the exchange among four lanes, this lane has the sums of one key, for some of the groups.
    const int my_key = key + 8 * (lane & 1), first_group = kGroups > 1 ? (lane >> 1 & 1) * (kGroups / 2) : 0;
    constexpr int kMine = kGroups > 1 ? kGroups / 2 : 1;
    const bool writes = my_key < a.n && (kGroups > 1 || (lane & 2) == 0);
    const int groups = (a.n + GROUP - 1) / GROUP;
    long long at = ((static_cast<long long>(batch) * a.heads + head) * groups + first_group) * a.pitch + my_key;

    const auto products = [&](float (&s)[64], int stage) {
      const uint64_t q = descriptor(base + stage * S::kTileBytes, 0);
      copies_visible();
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < D / 16; i++) wgmma<0>(s, k[i], q + (i >> 2) * (kQueries * 128 >> 4) + (i & 3) * 2, i > 0);
      wgmma_commit();
    };
    float2 lse[16];
    const auto load_lse = [&](int stage) {
#pragma unroll
      for (int j = 0; j < 16; j++) lse[j] = load_shared2(base + S::kLse + stage * kQueries * 4 + (lane & 3) * 8 + 32 * j);
    };
    const auto release = [&](int stage) {
      __syncwarp();
      if (lane == 0) barrier_arrive(empty + 8 * stage);
    };
    const auto collect = [&](float (&s)[64], int t) {
      float sum[kGroups][2];                     // of this lane's keys, key and key + 8
#pragma unroll
      for (int g = 0; g < kGroups; g++) {
        sum[g][0] = sum[g][1] = 0;
#pragma unroll
        for (int j = g * (GROUP / 8); j < (g + 1) * (GROUP / 8); j++) {
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const float x = fmaf(s[4 * j + i], a.scale_log2, -(i & 1 ? lse[j].y : lse[j].x));
            sum[g][i >> 1] += exp2_approx(x);
          }
        }
      }
      float mean[kMine];
#pragma unroll
      for (int g = 0; g < kGroups; g++) sum[g][0] = (lane & 1 ? sum[g][1] : sum[g][0]) + __shfl_xor_sync(~0u, lane & 1 ? sum[g][0] : sum[g][1], 1);
      if constexpr (kGroups == 1) {
        mean[0] = sum[0][0] + __shfl_xor_sync(~0u, sum[0][0], 2);
      } else {
#pragma unroll
        for (int g = 0; g < kMine; g++) mean[g] = (lane & 2 ? sum[g + kMine][0] : sum[g][0]) + __shfl_xor_sync(~0u, lane & 2 ? sum[g][0] : sum[g + kMine][0], 2);
      }
#pragma unroll
      for (int g = 0; g < kMine; g++) {
        const int group = t * kGroups + first_group + g;
        const float x = my_key >= start && (group + 1) * GROUP > start ? mean[g] : 0.f;
        if (writes && group < groups) {
          if (a.stype == kScoreF32) static_cast<float*>(a.scores)[at + g * a.pitch] = x;
          else static_cast<uint16_t*>(a.scores)[at + g * a.pitch] = to_log16(x);
        }
      }
      at += kGroups * a.pitch;
    };
    float s[64];
#pragma unroll 1
    for (int t = 0; t < tiles; t++) {
      barrier_wait(full + 8 * stage.index, stage.parity);
      products(s, stage.index);
      load_lse(stage.index);
      wgmma_wait<0>();
      release(stage.index);
      stage.next();
      collect(s, t);
    }
  }
}

#define SCORE(NAME, D, GROUP)                                                                                        \
  LAUNCH(NAME, kThreads, Shared<D>::kBytes, kKeys, 0)                                                                     \
  extern "C" __global__ void __launch_bounds__(kThreads, 1)                                                               \
      NAME(const bf16* q, const bf16* k, const float* lse, void* scores, const int* start, long long batch,          \
           long long heads, long long kv_heads, long long n, long long group, double scale, long long pitch,         \
           long long stype) {                                                                                        \
    score<D, GROUP>(Scores{q, k, lse, scores, start, static_cast<int>(batch), static_cast<int>(heads),               \
                           static_cast<int>(kv_heads), static_cast<int>(n), static_cast<float>(scale) * kLog2e,      \
                           pitch, static_cast<int>(stype)});                                                         \
  }

#define SCORE_GROUPS(D)                                                                                              \
  SCORE(score_sm90_d##D##_g128, D, 128)                                                                              \
  SCORE(score_sm90_d##D##_g64, D, 64)                                                                                \
  SCORE(score_sm90_d##D##_g32, D, 32)                                                                                \
  SCORE(score_sm90_d##D##_g16, D, 16)

SCORE_GROUPS(64)
SCORE_GROUPS(128)
