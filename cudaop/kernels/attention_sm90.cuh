// Attention on Hopper. Full attention and column-sparse attention are one kernel and differ in the keys that they fetch.
//
// A block works on items of 128 consecutive queries of one head, one after the other. Its three warpgroups have roles,
// joined by barriers in shared memory:
//
//   producer   full attention: one thread, which makes TMA copy tiles of keys and values into rings of stages of 128 keys,
//              in the layout of the Tensor Cores. Two blocks, a cluster, work on neighbouring queries, and each copies half
//              of every tile to both. That saves power, which limits the clock (producer_sm90.cuh)
//   lister     columns: turns the bits of the item's groups into lists of keys, one for each stage (two warps)
//   gatherer   columns: copies the listed keys and values row by row into the same rings (two warps, gather_sm90.cuh)
//   consumers  two warpgroups of 64 queries each run online softmax over the stages (consumer_sm90.cuh, softmax_sm90.cuh):
//              S = q kᵀ, P = exp2(S - row maximum), O = O + P v
//
// With groups of less than 128 queries, 128/group groups share an item, and their columns are fetched once (a union
// pack). A stage has, for each group, a mask of the keys that the group keeps. Keys that both halves of the queries keep
// fill shared stages; private stages come in pairs, one for each consumer, so that no consumer multiplies a key that none
// of its groups keeps.
//
// Limits, for a head of 128 columns on an H200 (132 multiprocessors): at 4096 matrix operations a clock a key costs 128
// queries 16 clocks of the Tensor Cores, 8 of the SFUs, and 13 for its 512 bytes from L2. So the Tensor Cores limit groups
// of 128 (at 1.6 GHz to 865 TFLOP/s; power may allow less). They also limit smaller groups with few columns in common,
// because a consumer multiplies a key with all of its 64 queries.
#pragma once

#include "consumer_sm90.cuh"
#include "gather_sm90.cuh"
#include "producer_sm90.cuh"

template <class T>
DEVICE void attend(const Attention& a, const Maps& maps) {
  extern __shared__ uint8_t memory[];
  const uint32_t base = (smem_address(memory) + 1023) & ~1023u;
  const int warpgroup = threadIdx.x >> 7, tid = threadIdx.x & 127, lane = tid & 31, warp = tid >> 5;
  const int rank = T::BLOCKS > 1 ? cluster_rank() : 0;
  if (threadIdx.x == 0) {
    const auto init = [&](int barrier, int stages, int count) {
      for (int i = 0; i < stages; i++) barrier_init(base + T::kBarriers + (barrier + i) * 8, count);
    };
    constexpr int gatherer_warps = T::GATHERERS / 32, consumers = 256 * T::BLOCKS;
    init(T::kKFull, T::KS, T::FULL ? T::BLOCKS : T::GATHERERS + gatherer_warps);  // the copies of each thread, and the masks of each warp
    init(T::kKEmpty, T::KS, consumers);
    init(T::kVFull, T::VS, T::FULL ? 1 : T::GATHERERS);
    init(T::kVEmpty, T::VS, consumers);
    init(T::kListFull, T::LS, T::LISTERS);
    init(T::kListEmpty, T::LS, T::GATHERERS);
    barrier_init_done();
  }
  if (T::BLOCKS > 1) cluster_sync(); else __syncthreads();
  if (warpgroup == 0) {
    registers_lower<T::P>();
    if constexpr (T::FULL) {
      if (tid == 0) Producer<T>{a, maps, base, rank}.run();
    } else if (tid < T::GATHERERS) {
      Gatherer<T>{a, base, tid, lane}.run();
    } else {
      Lister<T>{a, base, tid - T::GATHERERS, lane, (tid - T::GATHERERS) / 32}.run();
    }
  } else {
    registers_raise<T::C>();
    Consumer<T>{{a, base, __shfl_sync(~0u, warpgroup, 0) - 1, lane, warp, rank}}.run();
  }
  if (T::BLOCKS > 1) cluster_sync();             // the other block may still arrive at barriers of this one
}
