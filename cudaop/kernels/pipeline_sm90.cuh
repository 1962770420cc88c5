// What the roles of attention_sm90.cuh share: the geometry of a block, its work items, and what a stage carries.
#pragma once

#include "attention.cuh"
#include "hopper.cuh"

constexpr int kQueries = 128;                    // of an item
constexpr int kTile = 128;                       // keys of a stage

// Config is the geometry of a kernel: its threads, registers and shared memory. GROUPS is the number of query groups of a
// work item; 0 is full attention.
template <int D_, int GROUPS_>
struct Config {
  static constexpr int D = D_, GROUPS = GROUPS_;
  static constexpr bool FULL = GROUPS == 0;
  static constexpr int BLOCKS = FULL ? 2 : 1;                   // of a cluster
  static constexpr int P = FULL ? 24 : 56, C = FULL ? 240 : 224;  // registers of a thread of the producer warpgroup, of a consumer
  static constexpr int GATHERERS = 64, LISTERS = 64;            // threads
  static constexpr int MASKS = GROUPS > 1 ? GROUPS : 1;         // bitmaps of a stage
  static constexpr int KS = 3, VS = 3;                          // stages of keys and values
  static constexpr int LS = FULL ? 0 : 4;                      // and of lists
  static constexpr int kTileBytes = kTile * D * 2;
  using Bits = ColumnRings<FULL ? 1 : GROUPS, LISTERS>;

  static constexpr int kK = 0;
  static constexpr int kV = kK + KS * kTileBytes;
  static constexpr int kRings = kV + VS * kTileBytes;
  static constexpr int kMasks = kRings + (FULL ? 0 : Bits::kRings * Bits::kRingBytes);  // [KS][MASKS][4]
  static constexpr int kInfo = kMasks + KS * MASKS * 16;        // [KS]
  static constexpr int kLists = kInfo + KS * 4;                 // [LS][kTile]
  static constexpr int kListMasks = kLists + LS * kTile * 4;    // [LS][MASKS][4]
  static constexpr int kListInfo = kListMasks + LS * MASKS * 16;  // [LS]
  static constexpr int kTotals = kListInfo + LS * 4;            // scratch of Bits
  static constexpr int kBarriers = (kTotals + Bits::kTotalsBytes + 7) / 8 * 8;
  enum Barrier {
    kKFull, kKEmpty = kKFull + KS, kVFull = kKEmpty + KS, kVEmpty = kVFull + VS,
    kListFull = kVEmpty + VS, kListEmpty = kListFull + LS, kCount = kListEmpty + LS
  };
  static constexpr int kShared = kBarriers + kCount * 8 + 1024;  // the tiles start at a multiple of 1024
  static_assert(kShared <= 232448, "more shared memory than a block can have");
  static_assert(P + 2 * C <= 3 * 168, "more registers than the block starts with: setmaxnreg.inc would never return");
};

// The info word of a stage.
//   kNarrow   the stage has at most 64 keys
//   kPrivate  the stage has keys of the first consumer, and the next stage as many keys of the second. The info word of the
//             first holds for both: both are narrow or neither is
//   kMasked   some queries do not attend to all keys of the stage
//   kBegin    the stage has the queries of an item, whose keys follow; bits from kItemBit on are the item's number
//   kDone     there are no more stages
enum StageInfo { kNarrow = 1, kPrivate = 2, kMasked = 4, kBegin = 8, kDone = 16, kItemBit = 5 };

struct Item {
  int batch, head, first;                        // first query
};

// QueryTiles are the items of a head: those that contain a query of the query range.
struct QueryTiles {
  int first, count;
};

template <class T>
DEVICE QueryTiles query_tiles(const Attention& a) {
  constexpr int kItemQueries = T::BLOCKS * kQueries;
  const int from = a.query_range ? __ldg(a.query_range) : 0, to = a.query_range ? __ldg(a.query_range + 1) : a.n, first = from / kItemQueries;
  return {first, from < to ? (to + kItemQueries - 1) / kItemQueries - first : 0};
}

// A cluster starts with the item of its own number and advances by the number of clusters. Each of its blocks has 128
// queries of an item.
template <class T> DEVICE int items(const Attention& a) { return query_tiles<T>(a).count * a.heads * a.batch; }
template <class T> DEVICE int first_item() { return blockIdx.x / T::BLOCKS; }
template <class T> DEVICE int next_item(int number) { return number + gridDim.x / T::BLOCKS; }

template <class T>
DEVICE Item item(const Attention& a, int number) {
  const QueryTiles of = query_tiles<T>(a);
  const int bh = number / of.count, tile = of.first + number % of.count;
  return {bh / a.heads, bh % a.heads, (T::BLOCKS > 1 ? tile * T::BLOCKS + cluster_rank() : tile) * kQueries};
}

// key_head returns the index of the item's key head among those of all batch rows.
DEVICE int key_head(const Attention& a, const Item& it) { return it.batch * a.kv_heads + it.head / (a.heads / a.kv_heads); }
