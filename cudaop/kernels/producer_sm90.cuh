// The producer of full attention: one thread that makes TMA copy tiles of queries, keys and values into the stages.
//
// The keys of a stage are copied before the values of the stage before it. Consumers free memory in the same order, so
// neither copy waits for the other.
#pragma once

#include "pipeline_sm90.cuh"

// Maps are the tensor maps of the operands.
struct Maps {
  const TensorMap *q, *k, *v;
};

template <class T>
struct Producer {
  const Attention& a;
  const Maps& maps;
  const uint32_t base;
  const int rank;                                // in the cluster
  Stage<T::KS> ks;
  Stage<T::VS> vs;

  DEVICE uint32_t barrier(int i) const { return base + T::kBarriers + i * 8; }

  // copy_halves starts the copies of halves from .. to-1 of the rows of a tile, whose first row is `first`, to the blocks of
  // the mask.
  DEVICE void copy_halves(uint32_t tile, const TensorMap& map, int first, int matrix, uint32_t full, int from, int to, int blocks) {
#pragma unroll 1
    for (int half = from; half < to; half++) {
#pragma unroll
      for (int slab = 0; slab < T::D / 64; slab++)
        copy_box(tile + slab * kTile * 128 + half * 64 * 128, map, slab * 64, first + half * 64, matrix, full, blocks);
    }
  }
  // multicast copies this block's share of a tile to all blocks of the cluster.
  DEVICE void multicast(uint32_t tile, const TensorMap& map, int first, int matrix, uint32_t full) {
    copy_halves(tile, map, first, matrix, full, rank * 2 / T::BLOCKS, (rank + 1) * 2 / T::BLOCKS, (1 << T::BLOCKS) - 1);
  }

  // open waits until the next stage of keys is empty, writes its info word and the mask of its first count keys, and makes
  // its barrier expect bytes. The producer of the other block arrives at the barrier too: a stage is full in neither block
  // before it was empty in both.
  DEVICE uint32_t open(int info, int count, int bytes) {
    const uint32_t full = barrier(T::kKFull + ks.index);
    barrier_wait(barrier(T::kKEmpty + ks.index), ks.parity ^ 1);
#pragma unroll
    for (int i = 0; i < kTile / 32; i++) {
      const int ones = min(max(count - 32 * i, 0), 32);  // in this word of the mask
      store_shared(base + T::kMasks + (ks.index * kTile / 32 + i) * 4, ones == 32 ? ~0u : (1u << ones) - 1);
    }
    store_shared(base + T::kInfo + ks.index * 4, info);
    if (T::BLOCKS > 1) barrier_arrive_at(full, rank ^ 1, 1);
    barrier_expect(full, bytes);
    return full;
  }

  DEVICE void queries(int number, const Item& it) {
    const uint32_t full = open(kBegin | number << kItemBit, 0, T::kTileBytes);
    copy_halves(base + T::kK + ks.index * T::kTileBytes, *maps.q, it.first, it.batch * a.heads + it.head, full, 0, 2, 1 << rank);
    ks.next();
  }

  DEVICE void keys(int first, int head) {
    const uint32_t full = open(a.n - first < kTile ? kMasked : 0, a.n - first, T::kTileBytes);
    multicast(base + T::kK + ks.index * T::kTileBytes, *maps.k, first, head, full);
    ks.next();
  }

  DEVICE void values(int first, int head) {
    const uint32_t full = barrier(T::kVFull + vs.index);
    barrier_wait(barrier(T::kVEmpty + vs.index), vs.parity ^ 1);
    barrier_expect(full, T::kTileBytes);
    multicast(base + T::kV + vs.index * T::kTileBytes, *maps.v, first, head, full);
    vs.next();
  }

  DEVICE void run() {
    int before = -1, head_before = 0;            // the first key of the last stage of keys, whose values are not yet copied
    for (int number = first_item<T>(); number < items<T>(a); number = next_item<T>(number)) {
      const Item it = item<T>(a, number);
      const int head = key_head(a, it);
      queries(number, it);
      int key = a.start ? min(max(a.start[it.batch], 0), a.n) : 0;
      do {
        keys(key, head);
        if (before >= 0) values(before, head_before);
        before = key, head_before = head, key += kTile;
      } while (key < a.n);
    }
    if (before >= 0) values(before, head_before);
    open(kDone, 0, 0);
  }
};
