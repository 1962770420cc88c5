// The online softmax of a consumer: the state of its queries, and how the scores of a stage become weights.
//
// The row maximum of a query is the highest score of the first stage in which the query has a key, not the highest score so
// far. Weights are rounded to bf16, whose error is relative, and summed in float32, so large weights do no harm. If the
// weights of a stage become too large, its scores are computed a second time and their maximum becomes the row maximum.
#pragma once

#include "pipeline_sm90.cuh"

constexpr float kLarge = 4096;                   // a sum of a stage's weights above this needs a new row maximum

template <class T>
struct Softmax {
  const Attention& a;
  const uint32_t base;
  const int which, lane, warp, rank;             // consumer 0 or 1; warp of its warpgroup; block of the cluster
  Stage<T::KS> ks;
  Stage<T::VS> vs;
  int info;                                      // of the stage of keys
  float o[T::D / 2];
  uint32_t q[T::D / 16][4], p[kTile / 16][4];    // left operands: the queries, and the weights of a stage
  struct State {
    float row_max0 = kLowest, row_max1 = kLowest, sum0 = 0, sum1 = 0;  // of rows lane/4 and lane/4 + 8
  } state;
  float sum0, sum1;                              // of the stage's weights, of this thread
  bool has_row_max;                              // each row of the warp has one

  // read_stage_word returns a word that another thread has stored for a stage of keys. In full attention one lane reads it
  // for its warp. With columns each lane reads it: the shuffle costs 7 % at groups of 128.
  static constexpr bool kEachLaneReads = !T::FULL;
  DEVICE uint32_t read_stage_word(uint32_t at) const {
    if constexpr (kEachLaneReads) return load_shared(at); else return __shfl_sync(~0u, lane == 0 ? load_shared(at) : 0, 0);
  }

  // A vote on the result of a ballot is redundant, but with it ptxas spills a third less.
  DEVICE bool is(int flag) const { return __any_sync(~0u, info & flag); }

  // apply_mask sets the scores of keys that the group does not keep to -inf.
  template <int N>
  DEVICE void apply_mask(float (&s)[N / 2]) {
    const int g = T::MASKS == 1 ? 0 : (which * 64 + warp * 16) / (kQueries / T::MASKS);
#pragma unroll
    for (int i = 0; i < N / 32; i++) {
      const uint32_t mask = read_stage_word(base + T::kMasks + (ks.index * T::MASKS + g) * 16 + 4 * i) >> (2 * (lane & 3));
#pragma unroll
      for (int j = 4 * i; j < 4 * i + 4; j++) {
        if (!(mask >> (8 * (j % 4)) & 1)) s[4 * j] = s[4 * j + 2] = -CUDART_INF_F;
        if (!(mask >> (8 * (j % 4)) & 2)) s[4 * j + 1] = s[4 * j + 3] = -CUDART_INF_F;
      }
    }
  }

  struct Factors {
    float f0, f1;
  };

  // update_row_max takes the highest scores so far as row maxima. It returns the factors of sums and outputs.
  template <int N>
  DEVICE Factors update_row_max(const float (&s)[N / 2]) {
    float m0 = state.row_max0, m1 = state.row_max1;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
      m0 = fmaxf(m0, fmaxf(s[4 * j], s[4 * j + 1]));
      m1 = fmaxf(m1, fmaxf(s[4 * j + 2], s[4 * j + 3]));
    }
    m0 = quad_max(m0), m1 = quad_max(m1);
    has_row_max = __all_sync(~0u, m0 > kLowest && m1 > kLowest);
    const Factors by = {exp2_approx((state.row_max0 - m0) * a.scale_log2), exp2_approx((state.row_max1 - m1) * a.scale_log2)};
    state = {m0, m1, state.sum0 * by.f0, state.sum1 * by.f1};
    return by;
  }

  // softmax_exp2 turns the scores of keys FROM .. TO-1 into weights and adds them to sum0 and sum1.
  template <int FROM, int TO, int N>
  DEVICE void softmax_exp2(float (&s)[N]) {
    const float b0 = state.row_max0 * a.scale_log2, b1 = state.row_max1 * a.scale_log2;
    if (FROM == 0) sum0 = sum1 = 0;
#pragma unroll
    for (int j = FROM / 8; j < TO / 8; j++) {
      s[4 * j] = exp2_approx(fmaf(s[4 * j], a.scale_log2, -b0)), s[4 * j + 1] = exp2_approx(fmaf(s[4 * j + 1], a.scale_log2, -b0));
      s[4 * j + 2] = exp2_approx(fmaf(s[4 * j + 2], a.scale_log2, -b1)), s[4 * j + 3] = exp2_approx(fmaf(s[4 * j + 3], a.scale_log2, -b1));
      sum0 += s[4 * j] + s[4 * j + 1], sum1 += s[4 * j + 2] + s[4 * j + 3];
    }
  }

  // recompute_tile computes the weights of a stage with new row maxima, from scores that it computes a second time. Only
  // this warp may need it, hence mma.sync instead of wgmma.
  template <int N>
  DEVICE void recompute_tile(float (&s)[N / 2]) {
    const uint32_t keys = base + T::kK + ks.index * T::kTileBytes;
#pragma unroll
    for (int i = 0; i < N / 2; i++) s[i] = 0;
#pragma unroll
    for (int j = 0; j < N / 16; j++) {
#pragma unroll
      for (int i = 0; i < T::D / 16; i++) {
        const int row = 16 * j + (lane >> 4) * 8 + (lane & 7), chunk = 2 * i + (lane >> 3 & 1);
        uint32_t k[4];
        ldmatrix(k, keys + (chunk >> 3) * kTile * 128 + swizzled(row, chunk & 7));
        mma(&s[8 * j], q[i], k[0], k[1]);
        mma(&s[8 * j + 4], q[i], k[2], k[3]);
      }
    }
    if (is(kMasked)) apply_mask<N>(s);
    rescale(update_row_max<N>(s));
    softmax_exp2<0, N>(s);
  }

  // round makes the weights a left operand: the accumulator's layout is the operand's.
  template <int N>
  DEVICE void round(const float (&s)[N / 2]) {
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
#pragma unroll
      for (int i = 0; i < 4; i++) p[k][i] = pack(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
    }
  }

  DEVICE void rescale(const Factors& by) {
#pragma unroll
    for (int j = 0; j < T::D / 8; j++) o[4 * j] *= by.f0, o[4 * j + 1] *= by.f0, o[4 * j + 2] *= by.f1, o[4 * j + 3] *= by.f1;
  }
};
