// Attention on Hopper: full attention and column-sparse attention are one kernel that differs in which keys its
// producer fetches.
//
// A block works on 128 consecutive queries of one head. One warpgroup, the producer, copies keys and values row by row
// into a ring of stages of 128 keys, in the layout the matrix unit wants. Two warpgroups, the consumers, own 64 queries
// each and run online softmax over the stages: S = q kᵀ, P = exp2(S - max), O = O·rescale + P v. The scores of one step
// are computed while the values of the step before are multiplied, and the consumers take turns (PINGPONG), so that one's
// softmax hides under the other's products.
//
// With groups of less than 128 queries, 128/group groups share a block, and their columns are fetched once (a union
// pack). Every stage carries, for each group, one bit for each key that says whether the group keeps it. Keys that both
// halves of the queries need fill "shared" stages; after those, "private" stages hold 64 keys of the first consumer and
// 64 of the second, so that no consumer multiplies a key that none of its groups keeps.
//
// Limits, for a head of 128 columns on an H200 (132 multiprocessors): 4096 matrix operations a clock make a key of 128
// queries cost 16 clocks, against 8 of the exponential unit and 13 for its 512 bytes from L2. So the matrix unit bounds
// groups of 128 (at 1.6 GHz, what power allows: 865 TFLOP/s), L2 smaller groups with little in common.
#pragma once

#include "attention.cuh"
#include "hopper.cuh"

constexpr int kQueries = 128;                    // of a block
constexpr int kTile = 128;                       // keys of a stage

// GROUPS is the number of query groups in a block; 0 is full attention. STEP keys are multiplied at a time. QREG keeps
// the queries in registers. There are KS stages for keys and VS for values. P and C registers go to a thread of the
// producer and of the consumers.
template <int D_, int GROUPS_, int STEP_, bool QREG_, int KS_, int VS_, bool PINGPONG_, int P_, int C_>
struct Config {
  static constexpr int D = D_, GROUPS = GROUPS_, STEP = STEP_, KS = KS_, VS = VS_, P = P_, C = C_;
  static constexpr bool QREG = QREG_, PINGPONG = PINGPONG_;
  static constexpr int MASKS = GROUPS > 1 ? GROUPS : 1;         // bitmaps of a stage
  static constexpr int RINGS = GROUPS == 0 ? 0 : GROUPS == 1 ? 1 : 3;
  static constexpr int kTileBytes = kTile * D * 2;

  static constexpr int kQ = 0;
  static constexpr int kK = kQ + kQueries * D * 2;
  static constexpr int kV = kK + KS * kTileBytes;
  static constexpr int kRings = kV + VS * kTileBytes;
  static constexpr int kMasks = kRings + RINGS * kRingBytes;    // [KS][MASKS][4]
  static constexpr int kTotals = kMasks + KS * MASKS * 16;      // [4], of the producer's warps
  static constexpr int kInfo = kTotals + 16;                    // [KS]
  static constexpr int kBarriers = (kInfo + KS * 4 + 7) / 8 * 8;
  enum Barrier { kQFull, kQEmpty, kKFull, kKEmpty = kKFull + KS, kVFull = kKEmpty + KS, kVEmpty = kVFull + VS, kCount = kVEmpty + VS };
  static constexpr int kShared = kBarriers + kCount * 8 + 1024;  // the tiles start at a multiple of 1024
  static_assert(kShared <= 232448, "more shared memory than a block can have");
  static_assert(GROUPS <= 1 || STEP == 64, "private stages have steps of 64 keys");
  static_assert(P + 2 * C <= 3 * 168, "more registers than the block starts with: raising would wait for ever");
};

// What a consumer knows about a stage besides its masks.
enum StageInfo { kHalves = 3, kPrivate = 4, kLast = 8 };

struct Item {
  int batch, head, first;                        // first query
  long long keys;                                // where the head's keys and values start, in elements
};

template <int D, class F>
DEVICE void for_each_item(const Attention& a, F f) {
  const int tiles = (a.n + kQueries - 1) / kQueries, items = tiles * a.heads * a.batch;
#pragma unroll 1
  for (int i = blockIdx.x; i < items; i += gridDim.x) {
    const int bh = i / tiles, batch = bh / a.heads, head = bh % a.heads;
    const long long kv_head = static_cast<long long>(batch) * a.kv_heads + head / (a.heads / a.kv_heads);
    f(Item{batch, head, (i % tiles) * kQueries, kv_head * a.n * D});
  }
}

// --- The producer --------------------------------------------------------------------------------------------------

template <class T>
struct Producer {
  const Attention& a;
  const uint32_t base;
  const int tid, lane, warp;
  Stage<T::KS> ks;                               // of the keys and of the values
  Stage<T::VS> vs;
  uint32_t q_parity = 1;

  DEVICE uint32_t barrier(int i) const { return base + T::kBarriers + i * 8; }

  // rows copies the rows of 128 keys; offset holds those of this thread in bytes, ~0 for none.
  DEVICE void rows(uint32_t to, const char* from, const uint32_t (&offset)[8]) {
    to += swizzled(tid >> 3, tid & 7);
    from += (tid & 7) * 16;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const bool live = offset[i] != ~0u;
      const char* row = from + (live ? offset[i] : 0);
#pragma unroll
      for (int slab = 0; slab < T::D / 64; slab++) copy16(to + slab * kTile * 128 + i * 2048, row + slab * 128, live);
    }
  }

  // neighbours copies 128 rows that follow one another.
  DEVICE void neighbours(uint32_t to, const char* from) {
    to += swizzled(tid >> 3, tid & 7);
    from += (tid >> 3) * T::D * 2 + (tid & 7) * 16;
#pragma unroll
    for (int i = 0; i < 8; i++) {
#pragma unroll
      for (int slab = 0; slab < T::D / 64; slab++) copy16(to + slab * kTile * 128 + i * 2048, from + i * 16 * T::D * 2 + slab * 128, true);
    }
  }

  DEVICE void queries(const Item& it) {
    uint32_t offset[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const int r = it.first + (tid >> 3) + 16 * i;
      offset[i] = r < a.n ? r * (T::D * 2) : ~0u;
    }
    barrier_wait(barrier(T::kQEmpty), q_parity);
    q_parity ^= 1;
    rows(base + T::kQ, reinterpret_cast<const char*>(a.q + (static_cast<long long>(it.batch) * a.heads + it.head) * a.n * T::D), offset);
    barrier_arrive_copies(barrier(T::kQFull));
  }

  // emit fills the next stage. entry(r) is row r's key and, from bit kKeyBits on, the groups that keep it; kNoKey for
  // none. copy(to, from) copies the rows of the keys of one head.
  template <class Entry, class Copy>
  DEVICE void emit(const Item& it, bool first, int info, Entry entry, Copy copy) {
    const uint32_t mine = entry(tid);
    barrier_wait(barrier(T::kKEmpty + ks.index), ks.parity ^ 1);
#pragma unroll
    for (int g = 0; g < T::MASKS; g++) {
      const uint32_t word = __ballot_sync(~0u, mine != kNoKey && (T::MASKS == 1 || mine >> (kKeyBits + g) & 1));
      if (lane == 0) store_shared(base + T::kMasks + ((ks.index * T::MASKS + g) * 4 + warp) * 4, word);
    }
    if (tid == 0) store_shared(base + T::kInfo + ks.index * 4, info);
    if (lane == 0) barrier_arrive(barrier(T::kKFull + ks.index));
    copy(base + T::kK + ks.index * T::kTileBytes, reinterpret_cast<const char*>(a.k + it.keys));
    barrier_arrive_copies(barrier(T::kKFull + ks.index));
    if (first) queries(it);
    barrier_wait(barrier(T::kVEmpty + vs.index), vs.parity ^ 1);
    copy(base + T::kV + vs.index * T::kTileBytes, reinterpret_cast<const char*>(a.v + it.keys));
    barrier_arrive_copies(barrier(T::kVFull + vs.index));
    ks.next(), vs.next();
  }

  // gather is emit for rows that lie anywhere.
  template <class Entry>
  DEVICE void gather(const Item& it, bool first, int info, Entry entry) {
    uint32_t offset[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const uint32_t e = entry((tid >> 3) + 16 * i);
      offset[i] = e == kNoKey ? ~0u : (e & ((1u << kKeyBits) - 1)) * (T::D * 2);
    }
    emit(it, first, info, entry, [&](uint32_t to, const char* from) { rows(to, from, offset); });
  }

  DEVICE void dense(const Item& it) {
    const int start = a.start ? min(max(a.start[it.batch], 0), a.n) : 0;
    int key = start;
    for (; key + kTile <= a.n; key += kTile)
      emit(it, key == start, 2 | (key + kTile == a.n ? kLast : 0), [&](int r) { return static_cast<uint32_t>(key + r); },
           [&](uint32_t to, const char* from) { neighbours(to, from + static_cast<long long>(key) * (T::D * 2)); });
    if (key < a.n || key == start)
      gather(it, key == start, (a.n - key > 64 ? 2 : 1) | kLast, [&](int r) { return key + r < a.n ? static_cast<uint32_t>(key + r) : kNoKey; });
  }

  DEVICE void sparse(const Item& it) {
    const int words = (a.n + 31) / 32, u = it.first / (kQueries / T::GROUPS);
    const int groups = min(T::GROUPS, (a.n + kQueries / T::GROUPS - 1) / (kQueries / T::GROUPS) - u);
    const uint16_t* row = reinterpret_cast<const uint16_t*>(a.bits + it.batch * a.batch_stride + it.head * a.head_stride + static_cast<long long>(u) * words);
    Columns<T::GROUPS> columns(row, groups, a.n, base + T::kRings, base + T::kTotals);
    bool first = true;
    const auto shared = [&](bool last) {
      gather(it, first, (columns.have[0] > 64 ? 2 : 1) | (last ? kLast : 0), [&](int r) { return columns.template entry<0>(r); });
      columns.template drop<0>(kTile);
      first = false;
    };
    // As long as the row goes on, every stage leaves a key behind, so that there is a last stage to say so.
    if constexpr (T::GROUPS == 1) {
      while (columns.expand())
        while (columns.have[0] > kTile) shared(false);
      shared(true);
    } else {
      const auto apart = [&](bool last) {
        gather(it, first, kPrivate | 1 | (last ? kLast : 0), [&](int r) { return r < 64 ? columns.template entry<1>(r) : columns.template entry<2>(r - 64); });
        columns.template drop<1>(64), columns.template drop<2>(64);
        first = false;
      };
      const int(&have)[3] = columns.have;
      while (columns.expand()) {
        while (have[0] > kTile) shared(false);
        while ((have[1] > 64 && have[2] > 64) || have[1] > kTile || have[2] > kTile) apart(false);
      }
      if (have[0] > 0) shared(have[1] + have[2] == 0);
      while (first || have[1] + have[2] > 0) apart(have[1] <= 64 && have[2] <= 64);
    }
  }

  DEVICE void run() {
    for_each_item<T::D>(a, [&](const Item& it) {
      if constexpr (T::GROUPS == 0) dense(it); else sparse(it);
    });
  }
};

// --- The consumers -------------------------------------------------------------------------------------------------

template <class T>
struct Consumer {
  const Attention& a;
  const uint32_t base;
  const int which, tid, lane, warp;              // which of the two; threads of its warpgroup
  Stage<T::KS> ks;                               // of the keys and of the values
  Stage<T::VS> vs;
  uint32_t q_parity = 0;

  float o[T::D / 2], s[T::STEP / 2];
  uint32_t p[T::STEP / 16][4], q[T::QREG ? T::D / 16 : 1][4];
  float max0, max1, sum0, sum1, rescale0, rescale1;   // of rows lane/4 and lane/4 + 8
  uint32_t mask[T::STEP / 32];

  DEVICE uint32_t barrier(int i) const { return base + T::kBarriers + i * 8; }
  DEVICE void release(uint32_t b) {
    __syncwarp();
    if (lane == 0) barrier_arrive(b);
  }

  // my_turn waits until the other consumer has issued its products, your_turn lets it issue.
  DEVICE void my_turn() {
    if (T::PINGPONG) named_sync(2 + which, 256);
  }
  DEVICE void your_turn() {
    if (T::PINGPONG) named_arrive(3 - which, 256);
  }

  DEVICE void load_queries() {
    barrier_wait(barrier(T::kQFull), q_parity);
    q_parity ^= 1;
    if constexpr (T::QREG) {
      const int row = which * 64 + warp * 16 + (lane & 15);
#pragma unroll
      for (int k = 0; k < T::D / 16; k++) {
        const int chunk = 2 * k + (lane >> 4);
        ldmatrix(q[k], base + T::kQ + (chunk >> 3) * kQueries * 128 + swizzled(row, chunk & 7));
      }
      release(barrier(T::kQEmpty));
    } else {
      copies_visible();
    }
  }

  DEVICE void scores(int half) {
    const uint64_t k = descriptor(base + T::kK + ks.index * T::kTileBytes + half * 8192, 0);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < T::D / 16; i++) {
      const uint64_t b = k + (i >> 2) * (kTile * 128 >> 4) + (i & 3) * 2;
      if constexpr (T::QREG) {
        wgmma<0>(s, q[i], b, i > 0);
      } else {
        wgmma(s, descriptor(base + T::kQ + which * 8192, 0) + (i >> 2) * (kQueries * 128 >> 4) + (i & 3) * 2, b, i > 0);
      }
    }
    wgmma_commit();
  }

  DEVICE void values(int half) {
    const uint64_t v = descriptor(base + T::kV + vs.index * T::kTileBytes + half * 8192, kTile * 128);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < T::STEP / 16; i++) wgmma<1>(o, p[i], v + i * (2048 >> 4), true);
    wgmma_commit();
  }

  DEVICE void load_mask(int half) {
    const int g = T::MASKS == 1 ? 0 : (which * 64 + warp * 16) / (kQueries / T::MASKS);
    const uint32_t at = base + T::kMasks + ((ks.index * T::MASKS + g) * 4 + half * 2) * 4;
#pragma unroll
    for (int i = 0; i < T::STEP / 32; i++) mask[i] = load_shared(at + 4 * i);
  }

  DEVICE void softmax() {
    uint32_t all = ~0u;
#pragma unroll
    for (int i = 0; i < T::STEP / 32; i++) all &= mask[i];
    if (all != ~0u) {
#pragma unroll
      for (int j = 0; j < T::STEP / 8; j++) {
        const uint32_t m = mask[j / 4] >> (2 * (lane & 3)) >> (8 * (j % 4));
        if (!(m & 1)) s[4 * j] = s[4 * j + 2] = -CUDART_INF_F;
        if (!(m & 2)) s[4 * j + 1] = s[4 * j + 3] = -CUDART_INF_F;
      }
    }
    float m0 = max0, m1 = max1;
#pragma unroll
    for (int j = 0; j < T::STEP / 8; j++) {
      m0 = fmaxf(m0, fmaxf(s[4 * j], s[4 * j + 1]));
      m1 = fmaxf(m1, fmaxf(s[4 * j + 2], s[4 * j + 3]));
    }
    m0 = quad_max(m0), m1 = quad_max(m1);
    rescale0 = exp2_approx((max0 - m0) * a.scale_log2), rescale1 = exp2_approx((max1 - m1) * a.scale_log2);
    max0 = m0, max1 = m1;
    const float b0 = m0 * a.scale_log2, b1 = m1 * a.scale_log2;
    float t0 = 0, t1 = 0;
#pragma unroll
    for (int j = 0; j < T::STEP / 8; j++) {
      s[4 * j] = exp2_approx(fmaf(s[4 * j], a.scale_log2, -b0)), s[4 * j + 1] = exp2_approx(fmaf(s[4 * j + 1], a.scale_log2, -b0));
      s[4 * j + 2] = exp2_approx(fmaf(s[4 * j + 2], a.scale_log2, -b1)), s[4 * j + 3] = exp2_approx(fmaf(s[4 * j + 3], a.scale_log2, -b1));
      t0 += s[4 * j] + s[4 * j + 1], t1 += s[4 * j + 2] + s[4 * j + 3];
    }
    sum0 = sum0 * rescale0 + t0, sum1 = sum1 * rescale1 + t1;
  }

  // round turns the weights into the left operand of the next product: the accumulator's layout is the operand's.
  DEVICE void round() {
#pragma unroll
    for (int k = 0; k < T::STEP / 16; k++) {
#pragma unroll
      for (int i = 0; i < 4; i++) p[k][i] = pack(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
    }
  }

  DEVICE void rescale() {
    if (!__any_sync(~0u, rescale0 != 1.f || rescale1 != 1.f)) return;
#pragma unroll
    for (int j = 0; j < T::D / 8; j++) o[4 * j] *= rescale0, o[4 * j + 1] *= rescale0, o[4 * j + 2] *= rescale1, o[4 * j + 3] *= rescale1;
  }

  // enter waits for the keys of a stage and returns its StageInfo.
  DEVICE int enter() {
    barrier_wait(barrier(T::kKFull + ks.index), ks.parity);
    return load_shared(base + T::kInfo + ks.index * 4);
  }

  DEVICE void item(const Item& it) {
#pragma unroll
    for (int i = 0; i < T::D / 2; i++) o[i] = 0;
    max0 = max1 = kLowest, sum0 = sum1 = 0;

    int info = enter();
    load_queries();
    int half = T::STEP == 64 && (info & kPrivate) ? which : 0, left = T::STEP == 64 ? info & kHalves : 1;
    load_mask(half);
    my_turn();
    copies_visible();
    scores(half);
    your_turn();
    wgmma_wait<0>();
    if (--left == 0) release(barrier(T::kKEmpty + ks.index));
    softmax();
    round();
    while (true) {
      const int value_half = half;
      const bool stage_done = left == 0;
      if (stage_done) {
        if (info & kLast) break;
        ks.next();
        info = enter();
        half = T::STEP == 64 && (info & kPrivate) ? which : 0, left = T::STEP == 64 ? info & kHalves : 1;
      } else {
        half++;
      }
      load_mask(half);
      my_turn();
      copies_visible();
      scores(half);
      barrier_wait(barrier(T::kVFull + vs.index), vs.parity);
      copies_visible();
      values(value_half);
      your_turn();
      wgmma_wait<1>();
      if (--left == 0) release(barrier(T::kKEmpty + ks.index));
      softmax();
      wgmma_wait<0>();
      if (stage_done) release(barrier(T::kVEmpty + vs.index)), vs.next();
      round();
      rescale();
    }
    ks.next();
    if (!T::QREG) release(barrier(T::kQEmpty));
    barrier_wait(barrier(T::kVFull + vs.index), vs.parity);
    copies_visible();
    values(half);
    wgmma_wait<0>();
    release(barrier(T::kVEmpty + vs.index)), vs.next();
    finish(it);
  }

  DEVICE void finish(const Item& it) {
    sum0 = quad_sum(sum0), sum1 = quad_sum(sum1);
    const long long first = (static_cast<long long>(it.batch) * a.heads + it.head) * a.n;
    const int row = it.first + which * 64 + warp * 16 + (lane >> 2);
    store_row<T::D>(a.out, (first + row) * T::D, a.otype, o, sum0 > 0 ? 1 / sum0 : 0, lane & 3, row < a.n);
    store_row<T::D>(a.out, (first + row + 8) * T::D, a.otype, o + 2, sum1 > 0 ? 1 / sum1 : 0, lane & 3, row + 8 < a.n);
    if (a.lse && (lane & 3) == 0) {
      if (row < a.n) a.lse[first + row] = log_sum_exp(max0, sum0, a.scale_log2);
      if (row + 8 < a.n) a.lse[first + row + 8] = log_sum_exp(max1, sum1, a.scale_log2);
    }
  }

  DEVICE void run() {
    if (T::PINGPONG && which == 1) named_arrive(2, 256);  // the first turn is consumer 0's
    for_each_item<T::D>(a, [&](const Item& it) { item(it); });
    if (T::PINGPONG && which == 0) named_sync(2, 256);    // and the last offer of a turn is taken
  }
};

template <class T>
DEVICE void attend(const Attention& a) {
  extern __shared__ uint8_t memory[];
  const uint32_t base = (smem_address(memory) + 1023) & ~1023u;
  const int warpgroup = threadIdx.x >> 7, tid = threadIdx.x & 127, lane = tid & 31, warp = tid >> 5;
  if (threadIdx.x == 0) {
    const uint32_t b = base + T::kBarriers;
    barrier_init(b + T::kQFull * 8, 128);
    barrier_init(b + T::kQEmpty * 8, 8);                           // warps of the consumers
    for (int i = 0; i < T::KS; i++) {
      barrier_init(b + (T::kKFull + i) * 8, 128 + 4);              // copies, and the masks of each warp
      barrier_init(b + (T::kKEmpty + i) * 8, 8);
    }
    for (int i = 0; i < T::VS; i++) {
      barrier_init(b + (T::kVFull + i) * 8, 128);
      barrier_init(b + (T::kVEmpty + i) * 8, 8);
    }
    barrier_init_done();
  }
  __syncthreads();
  if (warpgroup == 0) {
    registers_lower<T::P>();
    Producer<T> p{a, base, tid, lane, warp};
    p.run();
  } else {
    registers_raise<T::C>();
    Consumer<T> c{a, base, warpgroup - 1, tid, lane, warp};
    c.run();
  }
}
