// A consumer: a warpgroup that multiplies its 64 queries with the keys and the weights with the values of each stage.
//
// The scores of a stage are computed while the values of the stage before are multiplied, also across items: the Tensor
// Cores do not wait for an item to end. An ordered barrier makes the two consumers issue their products in turns, so that
// the softmax of one overlaps with the products of the other.
#pragma once

#include "softmax_sm90.cuh"

template <class T>
struct Consumer : Softmax<T> {
  using Base = Softmax<T>;
  using typename Base::Factors;
  using typename Base::State;
  using Base::a;
  using Base::base;
  using Base::has_row_max;
  using Base::info;
  using Base::is;
  using Base::kEachLaneReads;
  using Base::ks;
  using Base::lane;
  using Base::o;
  using Base::p;
  using Base::q;
  using Base::rank;
  using Base::state;
  using Base::sum0;
  using Base::sum1;
  using Base::vs;
  using Base::warp;
  using Base::which;

  DEVICE uint32_t barrier(int i) const { return base + T::kBarriers + i * 8; }

  // release marks a stage as empty in all blocks that fill it: 32 arrivals of a warp, by lane 0, or 64 if it arrives for
  // both consumers. With each, every lane that has read the stage arrives for itself. The hardware does not need that;
  // compute-sanitizer does, to see the order.
  DEVICE void release(uint32_t b, bool each = false, bool for_both = false) {
    __syncwarp();
    const int times = for_both ? 2 : 1;
    if (each) barrier_arrive(b, times); else if (lane == 0) barrier_arrive(b, 32 * times);
    if (T::BLOCKS > 1 && lane == 0) barrier_arrive_at(b, rank ^ 1, 32);
  }

  // release_keys releases the stage of keys whose scores are computed. each: every lane has read keys.
  DEVICE void release_keys(bool each) {
    release(barrier(T::kKEmpty + ks.index), each || kEachLaneReads, is_private() && which == 1);
    advance(ks, is_private());
  }
  DEVICE void release_values(bool private_stage) {
    release(barrier(T::kVEmpty + vs.index), false, private_stage);
    advance(vs, private_stage);
  }
  // advance moves on to the next stage, past both stages of a private pair, of which each consumer uses one. It need not
  // wait for the copies to the other's stage: before this consumer comes to that place of the ring again, the other has
  // waited for them and passed the ordered barrier.
  template <class S>
  DEVICE void advance(S& stage, bool private_stage) {
    stage.next();
    if (private_stage && which == 0) stage.next();
  }

  // The ordered barrier: ordered_wait waits until the other consumer has issued its products, ordered_arrive lets it issue.
  DEVICE void ordered_wait() { named_sync(2 + which, 256); }
  DEVICE void ordered_arrive() { named_arrive(3 - which, 256); }

  // wait_keys waits for the next stage of keys; of a private pair, for this consumer's.
  DEVICE void wait_keys() {
    barrier_wait(barrier(T::kKFull + ks.index), ks.parity);
    // A ballot tells the compiler that the warp agrees: values that depend on it can stay in uniform registers, from which
    // products take their addresses.
    info = __ballot_sync(~0u, this->read_stage_word(base + T::kInfo + ks.index * 4) >> lane & 1);
    if (is_private() && which == 1) {
      release(barrier(T::kKEmpty + ks.index), kEachLaneReads), ks.next();
      barrier_wait(barrier(T::kKFull + ks.index), ks.parity);
    }
  }
  // Rows that threads have copied need a fence before the Tensor Cores see them; rows that TMA has copied do not.
  DEVICE void fence_copies() const {
    if constexpr (!T::FULL) copies_visible();
  }
  DEVICE bool narrow() const { return T::GROUPS > 0 && is(kNarrow); }
  DEVICE bool is_private() const { return T::GROUPS > 1 && is(kPrivate); }

  // load_queries reads the queries of an item and moves on to its first keys. info then has the item's number too.
  DEVICE void load_queries() {
    const int row = which * 64 + warp * 16 + (lane & 15), item_info = info;
#pragma unroll
    for (int i = 0; i < T::D / 16; i++) {
      const int chunk = 2 * i + (lane >> 4);
      ldmatrix(q[i], base + T::kK + ks.index * T::kTileBytes + (chunk >> 3) * kTile * 128 + swizzled(row, chunk & 7));
    }
    release(barrier(T::kKEmpty + ks.index), true), ks.next();
    wait_keys();
    info |= item_info;
  }

  template <int N>
  DEVICE void scores(float (&s)[N / 2]) {
    const uint64_t k = descriptor(base + T::kK + ks.index * T::kTileBytes, 0);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < T::D / 16; i++) wgmma<0>(s, q[i], advanced(k, (i >> 2) * kTile * 128 + (i & 3) * 32), i > 0);
    wgmma_commit();
  }

  // values adds the product with the values of the stage before. private_stage: it was of a private pair.
  template <int N>
  DEVICE void values(bool private_stage) {
    if (private_stage && which == 1) vs.next();
    barrier_wait(barrier(T::kVFull + vs.index), vs.parity);
    fence_copies();
    const uint64_t v = descriptor(base + T::kV + vs.index * T::kTileBytes, kTile * 128);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < N / 16; i++) wgmma<1>(o, p[i], advanced(v, i * 2048), true);
    wgmma_commit();
  }

  // begin computes the weights of the block's first stage, of N keys.
  template <int N>
  DEVICE void begin() {
    float s[N / 2];
    fence_copies();
    ordered_wait();
    scores<N>(s);
    ordered_arrive();
    wgmma_wait<0>();
    if (is(kMasked)) this->template apply_mask<N>(s);
    this->template update_row_max<N>(s);
    this->template softmax_exp2<0, N>(s);
    release_keys(false);
    state.sum0 += sum0, state.sum1 += sum1;
    this->template round<N>(s);
  }

  // step computes the weights of a stage of N keys while the product with the values of the stage before, of BEFORE keys,
  // runs. It returns the state before this stage, which is final if this stage is the first of an item.
  template <int N, int BEFORE>
  DEVICE State step(bool private_before) {
    float s[N / 2];
    fence_copies();                              // ahead of the ordered barrier, because it takes long
    ordered_wait();
    scores<N>(s);
    values<BEFORE>(private_before);
    ordered_arrive();
    wgmma_wait<1>();
    const State before = state;
    const bool fresh = is(kBegin);
    if (fresh) state = State(), has_row_max = false;
    if (is(kMasked)) this->template apply_mask<N>(s);
    const bool updates = !has_row_max;
    Factors by;
    if (updates) by = this->template update_row_max<N>(s);
    this->template softmax_exp2<0, N / 2>(s);
    // The wait for the product with the values stands in the middle of the exponentials, in both arms of a branch. Without
    // a branch the compiler moves it ahead of all of them; after them, the stage would be released late. All warps of a
    // warpgroup must wait at the same place: fresh is the same for all of them, updates is not.
    if (fresh) {
      wgmma_wait<0>();
    } else {
      wgmma_wait<0>();
      if (updates) this->rescale(by);
    }
    release_values(private_before);
    this->template softmax_exp2<N / 2, N>(s);
    const bool large = !updates && __any_sync(~0u, sum0 > kLarge || sum1 > kLarge);
    if (large) this->template recompute_tile<N>(s);
    release_keys(large);
    state.sum0 += sum0, state.sum1 += sum1;
    this->template round<N>(s);
    return before;
  }

  // finish writes the outputs of an item.
  DEVICE void finish(const Item& it, const State& last) {
    const float all0 = quad_sum(last.sum0), all1 = quad_sum(last.sum1);
    const long long first = (static_cast<long long>(it.batch) * a.heads + it.head) * a.n;
    const int row = it.first + which * 64 + warp * 16 + (lane >> 2);
    store_row<T::D>(a.out, a.out_row(it.batch, it.head, row) * T::D, a.otype, o, all0 > 0 ? 1 / all0 : 0, lane & 3, row < a.n);
    store_row<T::D>(a.out, a.out_row(it.batch, it.head, row + 8) * T::D, a.otype, o + 2, all1 > 0 ? 1 / all1 : 0, lane & 3, row + 8 < a.n);
    if (a.lse && (lane & 3) == 0) {
      if (row < a.n) a.lse[first + row] = log_sum_exp(last.row_max0, all0, a.scale_log2);
      if (row + 8 < a.n) a.lse[first + row + 8] = log_sum_exp(last.row_max1, all1, a.scale_log2);
    }
  }

  DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < T::D / 2; i++) o[i] = 0;
  }

  DEVICE void run() {
    if (which == 1) ordered_arrive();            // consumer 0 issues first
    wait_keys();
    if (!is(kDone)) {
      clear();
      load_queries();
      int number = info >> kItemBit;
      bool narrow_before = narrow(), private_before = is_private();
      if (narrow_before) begin<64>(); else begin<128>();
      while (true) {
        wait_keys();
        if (is(kDone)) break;
        if (is(kBegin)) load_queries();
        const State before = narrow() ? narrow_before ? step<64, 64>(private_before) : step<64, 128>(private_before)
                                      : narrow_before ? step<128, 64>(private_before) : step<128, 128>(private_before);
        narrow_before = narrow(), private_before = is_private();
        if (is(kBegin)) {
          finish(item<T>(a, number), before);
          clear();
          number = info >> kItemBit;
        }
      }
      if (narrow_before) values<64>(private_before); else values<128>(private_before);
      wgmma_wait<0>();
      finish(item<T>(a, number), state);
    }
    if (which == 0) ordered_wait();              // matches the last arrival of consumer 1
  }
};
