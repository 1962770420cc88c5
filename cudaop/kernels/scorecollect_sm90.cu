// Scores of every column for each query group, on Hopper: the mean over the group's queries i of exp2(scale·q_i·k_j -
// lse_i), with the log-sum-exp of full attention. Nothing of size N x N is stored.
//
// A block keeps 512 keys of one head in shared memory and streams all queries of the head. Four consumer warpgroups
// multiply 64 keys at a time with a tile of 128 queries. The product is K·Qᵀ, so that the queries of a group are
// accumulators of one thread: their sum needs no shared memory and no atomics, only an exchange among four lanes. The
// producer warpgroup copies the tiles and lse_i·log2(e) + log2(queries of the group), which makes the sum a mean; +inf
// removes a query from it.
//
// The lower bound is 2·N²·D·H operations: 512 clocks for 64 keys by 128 queries at D = 128, and as many for the
// exponentials. An H200 lowers its clock under both, so other work counts too: a tile is copied once for as many keys as
// shared memory holds, and blocks walk through the same tiles at the same time.
#include "hopper.cuh"

constexpr int kConsumers = 4, kThreads = 128 * (kConsumers + 1);
constexpr int kParts = 2;                        // of 64 keys, for each consumer
constexpr int kKeys = 64 * kConsumers * kParts, kQueries = 128, kStages = 3;
constexpr int kInFlight = 1;                     // tiles whose copies are not complete while the producer starts the next
constexpr int kLsePitch = 36;                    // 32 queries for each of four lanes, in different banks

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
  static constexpr int kTileBytes = kQueries * D * 2, kPartBytes = 64 * D * 2;
  static constexpr int kKeyTile = kStages * kTileBytes;
  static constexpr int kLse = kKeyTile + kConsumers * kParts * kPartBytes;   // [kStages][4][kLsePitch]
  static constexpr int kBarriers = kLse + kStages * 4 * kLsePitch * 4;       // full, empty [kStages]
  static constexpr int kBytes = kBarriers + 2 * kStages * 8 + 1024;
};

template <int D, int GROUP>
struct Block {
  using S = Shared<D>;
  static constexpr int kGroups = kQueries / GROUP;                 // of a tile
  static constexpr int kLaneGroups = kGroups > 1 ? kGroups / 2 : 1;  // of these, the groups that a lane writes
  const Scores& a;
  const uint32_t base;
  const int warpgroup, tid, lane;
  const int tiles, first;                        // tiles of queries, first key
  const int head, batch, start;                  // head counts over the batch
  Stage<kStages> stage;

  DEVICE uint32_t full(int stage) const { return base + S::kBarriers + 8 * stage; }
  DEVICE uint32_t empty(int stage) const { return full(kStages + stage); }
  DEVICE uint32_t lse_at(int stage, int lane, int i) const { return base + S::kLse + ((stage * 4 + lane) * kLsePitch + i) * 4; }

  DEVICE void produce() {
    const int row = tid >> 3, chunk = tid & 7;
    const bf16* k = a.k + (static_cast<long long>(batch) * a.kv_heads + head % a.heads / (a.heads / a.kv_heads)) * a.n * D + chunk * 8;
#pragma unroll 4
    for (int r = row; r < kKeys; r += 16) {
      const bool live = first + r < a.n;
#pragma unroll
      for (int slab = 0; slab < D / 64; slab++)
        copy16(base + S::kKeyTile + r / 64 * S::kPartBytes + slab * 64 * 128 + swizzled(r % 64, chunk), k + (live ? static_cast<long long>(first + r) * D + slab * 64 : 0), live);
    }
    const long long rows = static_cast<long long>(head) * a.n;
    const bf16* from = a.q + (rows + row) * D + chunk * 8;
    Stage<kStages> complete;
#pragma unroll 1
    for (int t = 0; t < tiles + kInFlight; t++) {
      if (t < tiles) {
        const int query = t * kQueries + tid, group = query / GROUP * GROUP;
        float x = CUDART_INF_F;
        if (query >= start && query < a.n) x = fmaf(a.lse[rows + query], kLog2e, __log2f(static_cast<float>(min(group + GROUP, a.n) - max(group, start))));
        barrier_wait(empty(stage.index), stage.parity ^ 1);
        const uint32_t to = base + stage.index * S::kTileBytes + swizzled(row, chunk);
        const auto copy = [&](auto start_copy) {
#pragma unroll
          for (int i = 0; i < kQueries; i += 16) {
#pragma unroll
            for (int slab = 0; slab < D / 64; slab++) start_copy(i, to + slab * kQueries * 128 + i * 128, from + i * D + slab * 64);
          }
        };
        if ((t + 1) * kQueries <= a.n) copy([](int, uint32_t to, const bf16* from) { copy16(to, from); });
        else copy([&](int i, uint32_t to, const bf16* from) {
          const bool live = t * kQueries + row + i < a.n;
          copy16(to, live ? from : a.q, live);
        });
        from += kQueries * D;
        store_shared(lse_at(stage.index, tid % 8 / 2, tid / 8 * 2 + tid % 2), __float_as_uint(x));
        stage.next();
      }
      copies_commit();
      if (t >= kInFlight) {                          // a tile is full when the Tensor Cores can see it
        copies_wait<kInFlight>();
        copies_visible();
        barrier_arrive(full(complete.index));
        complete.next();
      }
    }
  }

  DEVICE void consume() {
    const int consumer = warpgroup - 1, bytes = a.stype == kScoreF32 ? 4 : 2, groups = (a.n + GROUP - 1) / GROUP;
    const long long pitch = a.pitch * bytes;
    // After the exchange among four lanes, a lane has the sums of one key for kLaneGroups groups.
    const int key = first + consumer * 64 + (tid >> 5) * 16 + (lane >> 2) + 8 * (lane & 1), first_group = kGroups > 1 ? (lane >> 1 & 1) * kLaneGroups : 0;
    char* out = static_cast<char*>(a.scores) + (static_cast<long long>(head) * groups + first_group) * pitch + static_cast<long long>(key) * bytes;
    int left = groups - first_group;             // groups that are not yet written
#pragma unroll 1
    for (int t = 0; t < tiles; t++) {
      barrier_wait(full(stage.index), stage.parity);
      float lse[kQueries / 4];
#pragma unroll
      for (int part = 0; part < kParts; part++) {
        float s[64];
        const uint64_t k = descriptor(base + S::kKeyTile + (part * kConsumers + consumer) * S::kPartBytes, 0), q = descriptor(base + stage.index * S::kTileBytes, 0);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
          wgmma(s, k + (i >> 2) * (64 * 128 >> 4) + (i & 3) * 2, q + (i >> 2) * (kQueries * 128 >> 4) + (i & 3) * 2, i > 0);
        }
        wgmma_commit();
        if (part == 0) {
#pragma unroll
          for (int i = 0; i < kQueries / 4; i += 4) load_shared4(lse_at(stage.index, lane & 3, i), lse[i], lse[i + 1], lse[i + 2], lse[i + 3]);
        }
        wgmma_wait<0>();
        if (part == kParts - 1) {
          __syncwarp();
          if (lane == 0) barrier_arrive(empty(stage.index));
        }

        float sum[kGroups][2];                   // of this lane's two keys, 8 apart
#pragma unroll
        for (int j = 0; j < 64; j++) {           // key j / 2 % 2, query 8·(j / 4) + 2·(lane % 4) + j % 2 of the tile
          float& to = sum[j / 4 * 8 / GROUP][j >> 1 & 1];
          const float x = exp2_approx(fmaf(s[j], a.scale_log2, -lse[j / 4 * 2 + j % 2]));
          to = j % (GROUP / 2) < 4 && j % 2 == 0 ? x : to + x;
        }
        float mean[kLaneGroups];
#pragma unroll
        for (int g = 0; g < kGroups; g++) sum[g][0] = (lane & 1 ? sum[g][1] : sum[g][0]) + __shfl_xor_sync(~0u, lane & 1 ? sum[g][0] : sum[g][1], 1);
#pragma unroll
        for (int g = 0; g < kLaneGroups; g++) {
          const float other = sum[(g + kLaneGroups) % kGroups][0];
          mean[g] = (lane & 2 ? other : sum[g][0]) + __shfl_xor_sync(~0u, lane & 2 ? sum[g][0] : other, 2);
        }
        const int my_key = key + part * 64 * kConsumers;
#pragma unroll
        for (int g = 0; g < kLaneGroups; g++) {
          const float x = my_key >= start ? mean[g] : 0.f;
          if (my_key < a.n && g < left && (kGroups > 1 || (lane & 2) == 0)) {
            char* to = out + part * 64 * kConsumers * bytes + g * pitch;
            if (bytes == 4) *reinterpret_cast<float*>(to) = x;
            else *reinterpret_cast<uint16_t*>(to) = to_log16(x);
          }
        }
      }
      stage.next();
      out += kGroups * pitch, left -= kGroups;
    }
  }
};

template <int D, int GROUP>
DEVICE void score(const Scores& a) {
  using S = Shared<D>;
  extern __shared__ uint8_t memory[];
  uint32_t base = (smem_address(memory) + 1023) & ~1023u;
  asm("" : "+r"(base));                          // keeps the compiler from computing it at every use
  // A shuffle tells the compiler that the value is uniform.
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x >> 7), 0);
  const int blocks = (a.n + kKeys - 1) / kKeys, head = blockIdx.x / blocks, batch = head / a.heads;
  Block<D, GROUP> block{a, base, warpgroup, static_cast<int>(threadIdx.x & 127), static_cast<int>(threadIdx.x & 31),
                        (a.n + kQueries - 1) / kQueries, static_cast<int>(blockIdx.x % blocks) * kKeys, head, batch,
                        a.start ? min(max(a.start[batch], 0), a.n) : 0};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) barrier_init(block.full(i), 128), barrier_init(block.empty(i), 4 * kConsumers);
    barrier_init_done();
  }
  __syncthreads();
  if (warpgroup == 0) {
    registers_lower<32>();
    block.produce();
  } else {
    registers_raise<112>();
    block.consume();
  }
}

#define SCORE_COLLECT(NAME, D, GROUP)                                                                                \
  LAUNCH(NAME, kThreads, Shared<D>::kBytes, kKeys, 0)                                                                \
  extern "C" __global__ void __launch_bounds__(kThreads, 1)                                                          \
      NAME(const bf16* q, const bf16* k, const float* lse, void* scores, const int* start, long long batch,          \
           long long heads, long long kv_heads, long long n, long long group, double scale, long long pitch,         \
           long long stype) {                                                                                        \
    score<D, GROUP>(Scores{q, k, lse, scores, start, static_cast<int>(batch), static_cast<int>(heads),               \
                           static_cast<int>(kv_heads), static_cast<int>(n), static_cast<float>(scale) * kLog2e,      \
                           pitch, static_cast<int>(stype)});                                                         \
  }

#define SCORE_COLLECT_GROUPS(D)                                                                                      \
  SCORE_COLLECT(scorecollect_sm90_d##D##_g128, D, 128)                                                               \
  SCORE_COLLECT(scorecollect_sm90_d##D##_g64, D, 64)                                                                 \
  SCORE_COLLECT(scorecollect_sm90_d##D##_g32, D, 32)                                                                 \
  SCORE_COLLECT(scorecollect_sm90_d##D##_g16, D, 16)

SCORE_COLLECT_GROUPS(64)
SCORE_COLLECT_GROUPS(128)
