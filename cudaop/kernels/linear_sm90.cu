// Products of few rows: y [rows, out] = x [rows, in] · wᵀ [in, out], which take as long as it takes to read w. Weights are the
// left operand of wgmma, 64 features at a time, and rows of x the right one, so that no row of a matrix product is idle.
// Weights come by TMA through a ring of stages. The blocks of a cluster divide the inner dimension of one tile, and add their
// sums in the order of their rank.
#include "dependent.cuh"
#include "hopper.cuh"

constexpr int kStep = 64;                        // values of the inner dimension in a stage
constexpr int kConsumers = 128;                  // a warpgroup
constexpr int kBlock = kConsumers + 32;          // and a warp that loads
constexpr int kMostBlocks = 4;                   // in a cluster

// Tile has sizes for N rows of x, and 64·R features.
template <int N, int R> struct Tile {
  static constexpr int kFeatures = 64 * R;
  static constexpr int kHalf = kFeatures / 2;    // half of them are one box of weights, which is gate or up if there are both
  static constexpr int kWeightBytes = kFeatures * kStep * 2;
  static constexpr int kStage = kWeightBytes + N * kStep * 2;
  static constexpr int kStages = 112 * 1024 / kStage;  // two blocks fit on a multiprocessor
  static constexpr int kPitch = kFeatures + 4;   // floats between rows of sums; +4 keeps stores free of bank conflicts
  static constexpr int kBarriers = kStages * kStage;
  static constexpr int kBytes = kBarriers + 2 * kStages * 8;
  static_assert(N * kPitch * 4 <= kBarriers, "sums take the place of the stages");
};

struct Product {
  void* y;
  const void* bias;
  const void* residual;
  int rows, in, out, gated, otype;
};

// add adds four values of a row to x, or as many as are left in it. `left` is a multiple of 4 where rows are.
DEVICE void add(float (&x)[4], const void* tensor, long long at, int left, int otype) {
  if (left % 4 == 0 && otype == kOutBf16) {
    const uint2 v = *reinterpret_cast<const uint2*>(static_cast<const bf16*>(tensor) + at);
    x[0] += __uint_as_float(v.x << 16), x[1] += __uint_as_float(v.x & 0xFFFF0000u);
    x[2] += __uint_as_float(v.y << 16), x[3] += __uint_as_float(v.y & 0xFFFF0000u);
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; j++) {
    if (j < left) x[j] += otype == kOutF32 ? static_cast<const float*>(tensor)[at + j] : __bfloat162float(static_cast<const bf16*>(tensor)[at + j]);
  }
}

DEVICE void store(void* tensor, long long at, int left, const float (&x)[4], int otype) {
  if (left % 4 == 0) {
    if (otype == kOutF32) *reinterpret_cast<float4*>(static_cast<float*>(tensor) + at) = make_float4(x[0], x[1], x[2], x[3]);
    else *reinterpret_cast<uint2*>(static_cast<bf16*>(tensor) + at) = make_uint2(pack(x[0], x[1]), pack(x[2], x[3]));
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; j++) {
    if (j >= left) continue;
    if (otype == kOutF32) static_cast<float*>(tensor)[at + j] = x[j];
    else static_cast<bf16*>(tensor)[at + j] = __float2bfloat16(x[j]);
  }
}

// sum adds four sums of all blocks of the cluster.
DEVICE void sum(float (&x)[4], uint32_t address, int blocks) {
  float part[kMostBlocks][4];
#pragma unroll
  for (int r = 0; r < kMostBlocks; r++) load_shared4_at(address, min(r, blocks - 1), part[r]);
#pragma unroll
  for (int j = 0; j < 4; j++) {
    x[j] = part[0][j];
#pragma unroll
    for (int r = 1; r < kMostBlocks; r++) x[j] += r < blocks ? part[r][j] : 0.f;
  }
}

// finish writes the rows of a tile that are this block's, from the sums of all blocks of the cluster.
template <int N, int R> DEVICE void finish(const Product& p, uint32_t sums, int first, int rank, int blocks) {
  using T = Tile<N, R>;
  const int quads = p.gated ? T::kHalf / 4 : T::kFeatures / 4;
#pragma unroll 1
  for (int i = threadIdx.x; i < (p.rows - rank + blocks - 1) / blocks * quads; i += kBlock) {
    const int row = rank + i / quads * blocks, quad = i % quads, feature = first + 4 * quad, left = p.out - feature;
    if (left <= 0) continue;
    const long long at = static_cast<long long>(row) * p.out + feature;
    float other[4] = {}, x[4];
    if (p.residual) add(other, p.residual, at, left, p.otype);
    if (p.bias) add(other, p.bias, feature, left, p.otype);
    sum(x, sums + (row * T::kPitch + 4 * quad) * 4, blocks);
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] += other[j];
    if (p.gated) {
      float up[4];
      sum(up, sums + (row * T::kPitch + T::kHalf + 4 * quad) * 4, blocks);
      if (p.bias) add(up, p.bias, p.out + feature, left, p.otype);
#pragma unroll
      for (int j = 0; j < 4; j++) x[j] = __fdividef(x[j], 1.f + exp2_approx(-kLog2e * x[j])) * up[j];
    }
    store(p.y, at, left, x, p.otype);
  }
}

template <int N, int R> DEVICE void product(const TensorMap& w, const TensorMap& x, const Product& p) {
  using T = Tile<N, R>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t ring = smem_address(memory), filled = ring + T::kBarriers, empty = filled + T::kStages * 8;
  const int blocks = cluster_size(), rank = cluster_rank();
  const int first = static_cast<int>(blockIdx.x) / blocks * (p.gated ? T::kHalf : T::kFeatures);
  const int all = (p.in + kStep - 1) / kStep, from = all * rank / blocks, steps = all * (rank + 1) / blocks - from;

  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) {
      for (int i = 0; i < T::kStages; i++) barrier_init(filled + i * 8, 1), barrier_init(empty + i * 8, kConsumers / 32);
      barrier_init_done();
    }
    __syncwarp();
    named_arrive(2, kBlock);
    if (threadIdx.x == kConsumers) {
      const uint64_t once = policy_evict_first();
      const int second = first + (p.gated ? p.out : T::kHalf), ahead = min(steps, T::kStages);
      Stage<T::kStages> s;
      const auto weights = [&](int i) {
        const uint32_t to = ring + s.index * T::kStage, b = filled + s.index * 8;
        barrier_expect(b, T::kStage);
        copy_box(to, w, (from + i) * kStep, first, 0, b, once);
        copy_box(to + T::kWeightBytes / 2, w, (from + i) * kStep, second, 0, b, once);
      };
      const auto rows = [&](int i) { copy_box(ring + s.index * T::kStage + T::kWeightBytes, x, (from + i) * kStep, 0, 0, filled + s.index * 8); };
#pragma unroll 1
      for (int i = 0; i < ahead; i++, s.next()) weights(i);
      prerequisites_wait();                      // weights do not depend on earlier kernels
      s = {};
#pragma unroll 1
      for (int i = 0; i < ahead; i++, s.next()) rows(i);
#pragma unroll 1
      for (int i = ahead; i < steps; i++, s.next()) {
        barrier_wait(empty + s.index * 8, s.parity ^ 1);
        weights(i);
        rows(i);
      }
    }
    __syncwarp();
  } else {
    float sums[R][N / 2] = {};
    Stage<T::kStages> s;
    named_sync(2, kBlock);                       // the barriers exist
#pragma unroll 1
    for (int i = 0; i < steps; i++, s.next()) {
      barrier_wait(filled + s.index * 8, s.parity);
      const uint64_t a = descriptor(ring + s.index * T::kStage, 0), b = descriptor(ring + s.index * T::kStage + T::kWeightBytes, 0);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kStep / 16; k++) {
#pragma unroll
        for (int r = 0; r < R; r++) wgmma(sums[r], advanced(a, r * 64 * kStep * 2 + k * 32), advanced(b, k * 32), true);
      }
      wgmma_commit();
      wgmma_wait<0>();
      if (threadIdx.x % 32 == 0) barrier_arrive(empty + s.index * 8);
    }
    named_sync(1, kConsumers);                   // sums go where weights were
    const uint32_t to = ring + (threadIdx.x % 4 * 2 * T::kPitch + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) * 4;
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
      for (int j = 0; j < N / 2; j++)            // rows in steps of 8, rows and their next, features and those 8 further
        store_shared(to + ((j / 4 * 8 + j % 2) * T::kPitch + r * 64 + j / 2 % 2 * 8) * 4, __float_as_uint(sums[r][j]));
    }
  }
  prerequisites_wait();                          // of the residual, and of what reads or writes y
  cluster_sync();
  finish<N, R>(p, ring, first, rank, blocks);
  dependents_launch();                           // not before: blocks of the next kernel would share the first idle multiprocessors
  cluster_sync();                                // blocks read each other's memory until here
}

// linear: y = x wᵀ + bias + residual, for up to n16 or n32 rows of x. w and x are maps of [out, in] and [rows, in]. With gated,
// w [2 out, in] are gate and up, as are biases, and y = silu(gate) up. bias and residual may be null, residual may be y; both
// are of the type of y. Clusters of c blocks, at most 4 and at most in / 64, and c · ceil(out / tile) blocks. The tile is 128
// features with _t128 and 192 with _t192, half as many with gated.
#define LINEAR(N, F)                                                                                                       \
  LAUNCH(linear_sm90_n##N##_t##F, kBlock, (Tile<N, F / 64>::kBytes), F, 0)                                                 \
  DEPENDENT(linear_sm90_n##N##_t##F)                                                                                       \
  extern "C" __device__ long long linear_sm90_n##N##_t##F##_boxes[2];                                                      \
  __device__ long long linear_sm90_n##N##_t##F##_boxes[2] = {F / 2, N};                                                    \
  extern "C" __global__ void __launch_bounds__(kBlock, 2)                                                                  \
      linear_sm90_n##N##_t##F(const __grid_constant__ TensorMap w, const __grid_constant__ TensorMap x, void* y, const void* bias, \
                              const void* residual, long long rows, long long in, long long out, long long gated, long long otype) { \
    product<N, F / 64>(w, x, {y, bias, residual, static_cast<int>(rows), static_cast<int>(in), static_cast<int>(out),     \
                              static_cast<int>(gated), static_cast<int>(otype)});                                          \
  }

LINEAR(16, 128)
LINEAR(16, 192)
LINEAR(32, 128)
LINEAR(32, 192)
