// Attention on Hopper: full attention and column-sparse attention are one kernel that differs in which keys it fetches.
//
// A block works on 128 consecutive queries of one head at a time, and goes on to the next such item when it is done. Its
// three warpgroups have roles, joined by barriers in shared memory:
//
//   loader     full attention: one thread, which has the copy engine fetch tiles of keys and values into rings of stages
//              of 128 keys, in the layout the matrix unit wants. Two blocks (a cluster) work on neighbouring queries, and
//              each fetches half of every tile for both: that leaves power, which is what is short
//   expander   columns: turns the bits of the item's groups into lists of keys, one list for each stage (two warps)
//   copier     columns: copies the listed keys and values row by row into the same rings (two warps)
//   consumers  two warpgroups of 64 queries each run online softmax over the stages:
//              S = q kᵀ, P = exp2(S - reference), O = O + P v
//
// The scores of a stage are computed while the values of the stage before are multiplied, also where the one belongs to
// the next item: the matrix unit does not wait for an item to end. The consumers take turns, so that one's softmax hides
// under the other's products.
//
// The reference of a query is the highest score of the first stage in which it has a key, not the highest so far: weights
// are rounded to bf16, whose error is relative, and summed in float32, so they may as well be large. Where those of a stage
// become too large its scores are computed once more, and their maximum becomes the reference.
//
// With groups of less than 128 queries, 128/group groups share an item, and their columns are fetched once (a union
// pack). Every stage carries, for each group, one bit for each key that says whether the group keeps it. Keys that both
// halves of the queries need fill "shared" stages; "private" stages come in pairs, one for each consumer, so that no
// consumer multiplies a key that none of its groups keeps.
//
// Limits, for a head of 128 columns on an H200 (132 multiprocessors): 4096 matrix operations a clock make a key of 128
// queries cost 16 clocks, against 8 of the exponential unit and 13 for its 512 bytes from L2. So the matrix unit bounds
// groups of 128 (at 1.6 GHz: 865 TFLOP/s; power may allow less), and smaller groups with little in common too, since a
// consumer multiplies a key with all of its 64 queries, of whatever groups.
#pragma once

#include "attention.cuh"
#include "hopper.cuh"

constexpr int kQueries = 128;                    // of an item
constexpr int kTile = 128;                       // keys of a stage

// GROUPS is the number of query groups in an item; 0 is full attention.
template <int D_, int GROUPS_>
struct Config {
  static constexpr int D = D_, GROUPS = GROUPS_;
  static constexpr bool FULL = GROUPS == 0;
  static constexpr int BLOCKS = FULL ? 2 : 1;                   // of a cluster
  static constexpr int P = FULL ? 24 : 56, C = FULL ? 240 : 224;  // registers of a thread of the first warpgroup, of a consumer
  static constexpr int COPIERS = 64, EXPANDERS = 64;            // threads
  static constexpr int MASKS = GROUPS > 1 ? GROUPS : 1;         // bitmaps of a stage
  static constexpr int KS = 3, VS = 3;                          // stages of keys and values
  static constexpr int LS = FULL ? 0 : 4;                      // and of lists
  static constexpr int kTileBytes = kTile * D * 2;
  using Bits = Columns<FULL ? 1 : GROUPS, EXPANDERS>;

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
  static_assert(P + 2 * C <= 3 * 168, "more registers than the block starts with: raising would wait for ever");
};

// What is known of a stage besides its keys. A narrow one has at most 64. A private one has keys of the first consumer,
// and the stage behind it as many for the second, of which nothing is said; both are narrow or neither is. Of a masked one
// some queries do not see all keys. Before the keys of an item come its queries, in a stage of their own that says kBegin,
// with the item's number from kItemBit on. After the last stage comes one that is kDone and nothing else.
enum StageInfo { kNarrow = 1, kPrivate = 2, kMasked = 4, kBegin = 8, kDone = 16, kItemBit = 5 };

struct Item {
  int batch, head, first;                        // first query
};

// Parts are the items of a head: those with wanted queries.
struct Parts {
  int first, count;
};

template <class T>
DEVICE Parts parts(const Attention& a) {
  constexpr int kPart = T::BLOCKS * kQueries;
  const int from = a.span ? __ldg(a.span) : 0, to = a.span ? __ldg(a.span + 1) : a.n, first = from / kPart;
  return {first, from < to ? (to + kPart - 1) / kPart - first : 0};
}

// A cluster starts with the item of its own number and goes on by the number of clusters; each of its blocks has 128
// queries of an item.
template <class T> DEVICE int items(const Attention& a) { return parts<T>(a).count * a.heads * a.batch; }
template <class T> DEVICE int first_item() { return blockIdx.x / T::BLOCKS; }
template <class T> DEVICE int next_item(int number) { return number + gridDim.x / T::BLOCKS; }

template <class T>
DEVICE Item item(const Attention& a, int number) {
  const Parts of = parts<T>(a);
  const int bh = number / of.count, part = of.first + number % of.count;
  return {bh / a.heads, bh % a.heads, (T::BLOCKS > 1 ? part * T::BLOCKS + cluster_rank() : part) * kQueries};
}

// key_head counts key heads over the batch.
DEVICE int key_head(const Attention& a, const Item& it) { return it.batch * a.kv_heads + it.head / (a.heads / a.kv_heads); }

// A stage's keys are fetched before the values of the stage before: that is the order in which consumers give memory
// back, and neither has to wait for the other.

// --- The loader ----------------------------------------------------------------------------------------------------

struct Maps {
  const TensorMap *q, *k, *v;
};

template <class T>
struct Loader {
  const Attention& a;
  const Maps& maps;
  const uint32_t base;
  const int rank;                                // in the cluster
  Stage<T::KS> ks;
  Stage<T::VS> vs;

  DEVICE uint32_t barrier(int i) const { return base + T::kBarriers + i * 8; }

  // fetch starts the copies of the tile from row first on: of halves from .. to-1 of its rows, for the blocks of the mask.
  DEVICE void fetch(uint32_t tile, const TensorMap& map, int first, int matrix, uint32_t full, int from, int to, int blocks) {
#pragma unroll 1
    for (int half = from; half < to; half++) {
#pragma unroll
      for (int slab = 0; slab < T::D / 64; slab++)
        copy_box(tile + slab * kTile * 128 + half * 64 * 128, map, slab * 64, first + half * 64, matrix, full, blocks);
    }
  }
  DEVICE void share(uint32_t tile, const TensorMap& map, int first, int matrix, uint32_t full) {
    fetch(tile, map, first, matrix, full, rank * 2 / T::BLOCKS, (rank + 1) * 2 / T::BLOCKS, (1 << T::BLOCKS) - 1);
  }

  // open waits for the next stage of keys, tells what it will hold, of count keys, and lets it wait for bytes. The other
  // block's loader arrives too: so no block gives a stage back that the other has not got back from the time before.
  DEVICE uint32_t open(int info, int count, int bytes) {
    const uint32_t full = barrier(T::kKFull + ks.index);
    barrier_wait(barrier(T::kKEmpty + ks.index), ks.parity ^ 1);
#pragma unroll
    for (int i = 0; i < kTile / 32; i++) {
      const int here = min(max(count - 32 * i, 0), 32);  // in this word of the mask
      store_shared(base + T::kMasks + (ks.index * kTile / 32 + i) * 4, here == 32 ? ~0u : (1u << here) - 1);
    }
    store_shared(base + T::kInfo + ks.index * 4, info);
    if (T::BLOCKS > 1) barrier_arrive_at(full, rank ^ 1, 1);
    barrier_expect(full, bytes);
    return full;
  }

  DEVICE void queries(int number, const Item& it) {
    const uint32_t full = open(kBegin | number << kItemBit, 0, T::kTileBytes);
    fetch(base + T::kK + ks.index * T::kTileBytes, *maps.q, it.first, it.batch * a.heads + it.head, full, 0, 2, 1 << rank);
    ks.next();
  }

  DEVICE void keys(int first, int head) {
    const uint32_t full = open(a.n - first < kTile ? kMasked : 0, a.n - first, T::kTileBytes);
    share(base + T::kK + ks.index * T::kTileBytes, *maps.k, first, head, full);
    ks.next();
  }

  DEVICE void values(int first, int head) {
    const uint32_t full = barrier(T::kVFull + vs.index);
    barrier_wait(barrier(T::kVEmpty + vs.index), vs.parity ^ 1);
    barrier_expect(full, T::kTileBytes);
    share(base + T::kV + vs.index * T::kTileBytes, *maps.v, first, head, full);
    vs.next();
  }

  DEVICE void run() {
    int before = -1, head_before = 0;            // the first key of the stage before; its values are still to be fetched
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

// --- The copier ----------------------------------------------------------------------------------------------------

template <class T>
struct Copier {
  static constexpr int kAtOnce = T::COPIERS / 8, kRows = kTile / kAtOnce;  // 8 threads copy a row

  const Attention& a;
  const uint32_t base;
  const int tid, lane;
  Stage<T::KS> ks;
  Stage<T::VS> vs;
  long long at, at_before;                       // where the head's keys and values start, in elements; of the stage before

  DEVICE uint32_t barrier(int i) const { return base + T::kBarriers + i * 8; }

  // rows copies the rows of a tile; offset holds those of this thread in bytes, ~0 for none.
  DEVICE void rows(uint32_t to, const bf16* from, const uint32_t (&offset)[kRows]) {
    to += swizzled(tid >> 3, tid & 7);
    const char* first = reinterpret_cast<const char*>(from) + (tid & 7) * 16;
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      const bool live = offset[i] != ~0u;
      const char* row = first + (live ? offset[i] : 0);
#pragma unroll
      for (int slab = 0; slab < T::D / 64; slab++) copy16(to + slab * kTile * 128 + i * kAtOnce * 128, row + slab * 128, live);
    }
  }

  // neighbours copies the rows first .. first+127 of a tile, as far as they are below limit.
  DEVICE void neighbours(uint32_t to, const bf16* from, int first, int limit) {
    uint32_t offset[kRows];
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      const int r = first + (tid >> 3) + kAtOnce * i;
      offset[i] = r < limit ? r * (T::D * 2) : ~0u;
    }
    rows(to, from, offset);
  }

  // listed copies the rows of a list.
  DEVICE void listed(uint32_t to, const bf16* from, int list) {
    uint32_t offset[kRows];
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      const uint32_t key = load_shared(base + T::kLists + (list * kTile + (tid >> 3) + kAtOnce * i) * 4);
      offset[i] = key == kNoKey ? ~0u : key * (T::D * 2);
    }
    rows(to, from, offset);
  }

  // keys starts the next stage. copy(to) copies its rows; mask is this thread's word of its masks.
  template <class Copy>
  DEVICE void keys(int info, uint32_t mask, Copy copy) {
    barrier_wait(barrier(T::kKEmpty + ks.index), ks.parity ^ 1);
    if (tid < 4 * T::MASKS) store_shared(base + T::kMasks + (ks.index * T::MASKS * 4 + tid) * 4, mask);
    if (tid == 0) store_shared(base + T::kInfo + ks.index * 4, info);
    __syncwarp();
    if (lane == 0) barrier_arrive(barrier(T::kKFull + ks.index));
    copy(base + T::kK + ks.index * T::kTileBytes);
    barrier_arrive_copies(barrier(T::kKFull + ks.index));
    ks.next();
  }

  template <class Copy>
  DEVICE void values(Copy copy) {
    barrier_wait(barrier(T::kVEmpty + vs.index), vs.parity ^ 1);
    copy(base + T::kV + vs.index * T::kTileBytes);
    barrier_arrive_copies(barrier(T::kVFull + vs.index));
    vs.next();
  }

  // begin starts an item with its queries.
  DEVICE void begin(const Item& it, int number) {
    const bf16* q = a.q + (static_cast<long long>(it.batch) * a.heads + it.head) * a.n * T::D;
    at = static_cast<long long>(key_head(a, it)) * a.n * T::D;
    keys(kBegin | number << kItemBit, 0, [&](uint32_t to) { neighbours(to, q, it.first, a.n); });
  }

  DEVICE void done() { keys(kDone, 0, [](uint32_t) {}); }

  DEVICE void run() {
    int before = -1;                             // the list of the stage before; its values are still to be fetched
    const auto values_before = [&] {
      if (before < 0) return;
      values([&](uint32_t to) { listed(to, a.v + at_before, before); });
      barrier_arrive(barrier(T::kListEmpty + before));
    };
    for (Stage<T::LS> ls;; ls.next()) {
      barrier_wait(barrier(T::kListFull + ls.index), ls.parity);
      const int info = load_shared(base + T::kListInfo + ls.index * 4);
      if (__any_sync(~0u, info & kDone)) break;
      if (__any_sync(~0u, info & kBegin)) begin(item<T>(a, info >> kItemBit), info >> kItemBit);
      const uint32_t mask = tid < 4 * T::MASKS ? load_shared(base + T::kListMasks + (ls.index * T::MASKS * 4 + tid) * 4) : 0;
      keys(info & (kNarrow | kPrivate | kMasked), mask, [&](uint32_t to) { listed(to, a.k + at, ls.index); });
      values_before();
      before = ls.index, at_before = at;
    }
    values_before();
    done();
  }
};

// --- The expander --------------------------------------------------------------------------------------------------

template <class T>
struct Expander {
  using Bits = typename T::Bits;
  static constexpr int kGroup = kQueries / T::GROUPS;

  const Attention& a;
  const uint32_t base;
  const int tid, lane, warp;
  Stage<T::LS> ls;
  int first = 0;                                 // kBegin and the item's number until its first list is out

  DEVICE uint32_t barrier(int i) const { return base + T::kBarriers + i * 8; }

  // list fills the next list. entry(r) is row r's key and, from bit kKeyBits on, the groups that keep it; kNoKey for
  // none.
  template <class Entry>
  DEVICE void list(int info, Entry entry) {
    constexpr int kRows = kTile / T::EXPANDERS;
    uint32_t e[kRows];
#pragma unroll
    for (int i = 0; i < kRows; i++) e[i] = entry(tid + T::EXPANDERS * i);
    barrier_wait(barrier(T::kListEmpty + ls.index), ls.parity ^ 1);
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      const bool live = e[i] != kNoKey;
#pragma unroll
      for (int g = 0; g < T::MASKS; g++) {
        const uint32_t word = __ballot_sync(~0u, live && (T::MASKS == 1 || e[i] >> (kKeyBits + g) & 1));
        if (lane == 0) store_shared(base + T::kListMasks + ((ls.index * T::MASKS + g) * 4 + T::EXPANDERS / 32 * i + warp) * 4, word);
      }
      store_shared(base + T::kLists + (ls.index * kTile + tid + T::EXPANDERS * i) * 4, live ? e[i] & ((1u << kKeyBits) - 1) : kNoKey);
    }
    if (tid == 0) store_shared(base + T::kListInfo + ls.index * 4, info | first);
    first = 0;
    barrier_arrive(barrier(T::kListFull + ls.index));
    ls.next();
  }

  // shared makes a list of keys that both halves of the queries need.
  DEVICE void shared(Bits& columns) {
    const int masked = T::GROUPS > 2 || columns.have[0] < kTile ? kMasked : 0;
    list((columns.have[0] > 64 ? 0 : kNarrow) | masked, [&](int r) { return columns.template entry<0>(r); });
    columns.template drop<0>(kTile);
  }

  // apart makes two lists, of the private keys of each half. What is left of the shared keys goes into both, if it fits.
  DEVICE void apart(Bits& columns) {
    const auto& have = columns.have;
    const int longest = max(have[1], have[2]), more = have[0] + longest <= kTile ? have[0] : 0;
    const int masked = T::GROUPS > 2 || min(have[1], have[2]) < kTile ? kMasked : 0;
    list(kPrivate | (longest + more > 64 ? 0 : kNarrow) | masked,
         [&](int r) { return r < have[1] || more == 0 ? columns.template entry<1>(r) : columns.template entry<0>(r - have[1]); });
    list(0, [&](int r) { return r < have[2] || more == 0 ? columns.template entry<2>(r) : columns.template entry<0>(r - have[2]); });
    columns.template drop<0>(more), columns.template drop<1>(kTile), columns.template drop<2>(kTile);
  }

  DEVICE void open(Bits& columns, int number) {
    const Item it = item<T>(a, number);
    const int words = (a.n + 31) / 32, u = it.first / kGroup;
    columns.open(a.bits + it.batch * a.batch_stride + it.head * a.head_stride + static_cast<long long>(u) * words,
                 min(T::GROUPS, (a.n + kGroup - 1) / kGroup - u));
  }

  DEVICE void run() {
    Bits columns(tid, a.n, base + T::kRings, base + T::kTotals);
    const auto& have = columns.have;
    int number = first_item<T>();
    if (number < items<T>(a)) open(columns, number);
    while (number < items<T>(a)) {
      first = kBegin | number << kItemBit;
      while (columns.expand()) {
        while (have[0] >= kTile) shared(columns);
        if constexpr (T::GROUPS > 1)
          while (min(have[1], have[2]) >= kTile || max(have[1], have[2]) > Bits::kLeft) apart(columns);
      }
      number = next_item<T>(number);
      if (number < items<T>(a)) open(columns, number);  // what is loaded is needed after the lists that are left
      if constexpr (T::GROUPS > 1) {
        while (max(have[1], have[2]) > kTile) apart(columns);
        if (have[0] + max(have[1], have[2]) > kTile) shared(columns);
        if (have[1] + have[2] > 0) apart(columns);
      }
      if (have[0] > 0) shared(columns);
      if (first) list(kNarrow | kMasked, [](int) { return kNoKey; });  // no group keeps anything
    }
    list(kDone, [](int) { return kNoKey; });
  }
};

// --- The consumers -------------------------------------------------------------------------------------------------

constexpr float kLarge = 4096;                   // sums of a stage's weights from here on want another reference

template <class T>
struct Consumer {
  const Attention& a;
  const uint32_t base;
  const int which, lane, warp, rank;             // which of the two; warp of its warpgroup; block of the cluster
  Stage<T::KS> ks;
  Stage<T::VS> vs;
  int info;                                      // of the stage
  float o[T::D / 2];
  uint32_t q[T::D / 16][4], p[kTile / 16][4];    // left operands: the queries, and the weights of a stage
  struct State {
    float reference0 = kLowest, reference1 = kLowest, sum0 = 0, sum1 = 0;  // of rows lane/4 and lane/4 + 8
  } state;
  float sum0, sum1;                              // of the stage's weights, of this thread
  bool referred;                                 // each row of the warp has a reference

  DEVICE uint32_t barrier(int i) const { return base + T::kBarriers + i * 8; }

  // release gives a stage back to all blocks that fill it: 32 arrivals of a warp, by lane 0, or as many for the other
  // consumer too. Where each lane has read the stage itself each arrives for itself. That is not needed, but
  // compute-sanitizer only sees it so.
  DEVICE void release(uint32_t b, bool each = false, bool for_both = false) {
    __syncwarp();
    const int times = for_both ? 2 : 1;
    if (each) barrier_arrive(b, times); else if (lane == 0) barrier_arrive(b, 32 * times);
    if (T::BLOCKS > 1 && lane == 0) barrier_arrive_at(b, rank ^ 1, 32);
  }

  // told returns a word that another thread has stored in a stage of keys. In full attention one lane reads it for its
  // warp; with columns, where the shuffle has cost 7 % of groups of 128, each does.
  static constexpr bool kEachIsTold = !T::FULL;
  DEVICE uint32_t told(uint32_t at) const {
    if constexpr (kEachIsTold) return load_shared(at); else return __shfl_sync(~0u, lane == 0 ? load_shared(at) : 0, 0);
  }
  // release_keys gives back the stage of keys of which the scores are computed; each says that every lane has read keys.
  DEVICE void release_keys(bool each) {
    release(barrier(T::kKEmpty + ks.index), each || kEachIsTold, apart() && which == 1);
    leave(ks, apart());
  }
  DEVICE void release_values(bool apart) {
    release(barrier(T::kVEmpty + vs.index), false, apart);
    leave(vs, apart);
  }
  // leave goes on behind a stage, or behind a pair: of that each consumer uses one stage. It need not wait for the other's
  // copies to be complete: when it comes to that place of the ring again, the other has waited for them and passed the
  // turn on.
  template <class S>
  DEVICE void leave(S& stage, bool apart) {
    stage.next();
    if (apart && which == 0) stage.next();
  }

  // my_turn waits until the other consumer has issued its products, your_turn lets it issue.
  DEVICE void my_turn() { named_sync(2 + which, 256); }
  DEVICE void your_turn() { named_arrive(3 - which, 256); }

  // enter waits for the next stage, of a pair for this consumer's.
  DEVICE void enter() {
    barrier_wait(barrier(T::kKFull + ks.index), ks.parity);
    // A ballot tells the compiler that the warp agrees: what depends on it can stay in uniform registers, which products
    // take their addresses from.
    info = __ballot_sync(~0u, told(base + T::kInfo + ks.index * 4) >> lane & 1);
    if (apart() && which == 1) {
      release(barrier(T::kKEmpty + ks.index), kEachIsTold), ks.next();
      barrier_wait(barrier(T::kKFull + ks.index), ks.parity);
    }
  }
  // A vote on what a ballot has made is not needed, but with it ptxas spills a third less.
  DEVICE bool is(int flag) const { return __any_sync(~0u, info & flag); }
  // What threads have copied becomes visible to the matrix unit; what the copy engine has copied is.
  DEVICE void visible() const {
    if constexpr (!T::FULL) copies_visible();
  }
  DEVICE bool narrow() const { return T::GROUPS > 0 && is(kNarrow); }
  DEVICE bool apart() const { return T::GROUPS > 1 && is(kPrivate); }

  // queries takes over the queries of an item and goes on to its first keys, whose info then says of which item they are.
  DEVICE void queries() {
    const int row = which * 64 + warp * 16 + (lane & 15), begun = info;
#pragma unroll
    for (int i = 0; i < T::D / 16; i++) {
      const int chunk = 2 * i + (lane >> 4);
      ldmatrix(q[i], base + T::kK + ks.index * T::kTileBytes + (chunk >> 3) * kTile * 128 + swizzled(row, chunk & 7));
    }
    release(barrier(T::kKEmpty + ks.index), true), ks.next();
    enter();
    info |= begun;
  }

  template <int N>
  DEVICE void scores(float (&s)[N / 2]) {
    const uint64_t k = descriptor(base + T::kK + ks.index * T::kTileBytes, 0);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < T::D / 16; i++) wgmma<0>(s, q[i], advanced(k, (i >> 2) * kTile * 128 + (i & 3) * 32), i > 0);
    wgmma_commit();
  }

  // values adds those of the stage before; apart says that it was of a pair.
  template <int N>
  DEVICE void values(bool apart) {
    if (apart && which == 1) vs.next();
    barrier_wait(barrier(T::kVFull + vs.index), vs.parity);
    visible();
    const uint64_t v = descriptor(base + T::kV + vs.index * T::kTileBytes, kTile * 128);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < N / 16; i++) wgmma<1>(o, p[i], advanced(v, i * 2048), true);
    wgmma_commit();
  }

  // hide makes the scores of keys that the group does not keep -inf.
  template <int N>
  DEVICE void hide(float (&s)[N / 2]) {
    const int g = T::MASKS == 1 ? 0 : (which * 64 + warp * 16) / (kQueries / T::MASKS);
#pragma unroll
    for (int i = 0; i < N / 32; i++) {
      const uint32_t mask = told(base + T::kMasks + (ks.index * T::MASKS + g) * 16 + 4 * i) >> (2 * (lane & 3));
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

  // refer makes the highest scores so far the references. It returns by how much sums and outputs change.
  template <int N>
  DEVICE Factors refer(const float (&s)[N / 2]) {
    float m0 = state.reference0, m1 = state.reference1;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
      m0 = fmaxf(m0, fmaxf(s[4 * j], s[4 * j + 1]));
      m1 = fmaxf(m1, fmaxf(s[4 * j + 2], s[4 * j + 3]));
    }
    m0 = quad_max(m0), m1 = quad_max(m1);
    referred = __all_sync(~0u, m0 > kLowest && m1 > kLowest);
    const Factors by = {exp2_approx((state.reference0 - m0) * a.scale_log2), exp2_approx((state.reference1 - m1) * a.scale_log2)};
    state = {m0, m1, state.sum0 * by.f0, state.sum1 * by.f1};
    return by;
  }

  // weigh turns the scores of keys FROM .. TO-1 into weights.
  template <int FROM, int TO, int N>
  DEVICE void weigh(float (&s)[N]) {
    const float b0 = state.reference0 * a.scale_log2, b1 = state.reference1 * a.scale_log2;
    if (FROM == 0) sum0 = sum1 = 0;
#pragma unroll
    for (int j = FROM / 8; j < TO / 8; j++) {
      s[4 * j] = exp2_approx(fmaf(s[4 * j], a.scale_log2, -b0)), s[4 * j + 1] = exp2_approx(fmaf(s[4 * j + 1], a.scale_log2, -b0));
      s[4 * j + 2] = exp2_approx(fmaf(s[4 * j + 2], a.scale_log2, -b1)), s[4 * j + 3] = exp2_approx(fmaf(s[4 * j + 3], a.scale_log2, -b1));
      sum0 += s[4 * j] + s[4 * j + 1], sum1 += s[4 * j + 2] + s[4 * j + 3];
    }
  }

  // again computes the weights of a stage with new references, from its scores computed once more: those of this warp
  // alone, so by mma.sync.
  template <int N>
  DEVICE void again(float (&s)[N / 2]) {
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
    if (is(kMasked)) hide<N>(s);
    rescale(refer<N>(s));
    weigh<0, N>(s);
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

  // begin computes the weights of the block's first stage, of N keys.
  template <int N>
  DEVICE void begin() {
    float s[N / 2];
    visible();
    my_turn();
    scores<N>(s);
    your_turn();
    wgmma_wait<0>();
    if (is(kMasked)) hide<N>(s);
    refer<N>(s);
    weigh<0, N>(s);
    release_keys(false);
    state.sum0 += sum0, state.sum1 += sum1;
    round<N>(s);
  }

  // step computes the weights of a stage of N keys while the values of the stage before, of BEFORE keys, are added. It
  // returns what was the state before, which is final if this stage is the first of an item.
  template <int N, int BEFORE>
  DEVICE State step(bool apart_before) {
    float s[N / 2];
    visible();                                   // not when it is this consumer's turn: it takes a while
    my_turn();
    scores<N>(s);
    values<BEFORE>(apart_before);
    your_turn();
    wgmma_wait<1>();
    const State before = state;
    const bool fresh = is(kBegin);
    if (fresh) state = State(), referred = false;
    if (is(kMasked)) hide<N>(s);
    const bool refers = !referred;
    Factors by;
    if (refers) by = refer<N>(s);
    weigh<0, N / 2>(s);
    // The wait for the values' product stands in the middle of the exponentials, in both arms of a branch. Without a
    // branch the compiler moves it ahead of all of them; after them, the memory would be given back later than it could
    // be. All warps of a warpgroup must wait at the same place: fresh is the same for all of them, refers is not.
    if (fresh) {
      wgmma_wait<0>();
    } else {
      wgmma_wait<0>();
      if (refers) rescale(by);
    }
    release_values(apart_before);
    weigh<N / 2, N>(s);
    const bool large = !refers && __any_sync(~0u, sum0 > kLarge || sum1 > kLarge);
    if (large) again<N>(s);
    release_keys(large);
    state.sum0 += sum0, state.sum1 += sum1;
    round<N>(s);
    return before;
  }

  DEVICE void finish(const Item& it, const State& last) {
    const float sum0 = quad_sum(last.sum0), sum1 = quad_sum(last.sum1);
    const long long first = (static_cast<long long>(it.batch) * a.heads + it.head) * a.n;
    const int row = it.first + which * 64 + warp * 16 + (lane >> 2);
    store_row<T::D>(a.out, a.out_row(it.batch, it.head, row) * T::D, a.otype, o, sum0 > 0 ? 1 / sum0 : 0, lane & 3, row < a.n);
    store_row<T::D>(a.out, a.out_row(it.batch, it.head, row + 8) * T::D, a.otype, o + 2, sum1 > 0 ? 1 / sum1 : 0, lane & 3, row + 8 < a.n);
    if (a.lse && (lane & 3) == 0) {
      if (row < a.n) a.lse[first + row] = log_sum_exp(last.reference0, sum0, a.scale_log2);
      if (row + 8 < a.n) a.lse[first + row + 8] = log_sum_exp(last.reference1, sum1, a.scale_log2);
    }
  }

  DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < T::D / 2; i++) o[i] = 0;
  }

  DEVICE void run() {
    if (which == 1) your_turn();                 // the first turn is consumer 0's
    enter();
    if (!is(kDone)) {
      clear();
      queries();
      int number = info >> kItemBit;
      bool narrow_before = narrow(), apart_before = apart();
      if (narrow_before) begin<64>(); else begin<128>();
      while (true) {
        enter();
        if (is(kDone)) break;
        if (is(kBegin)) queries();
        const State before = narrow() ? narrow_before ? step<64, 64>(apart_before) : step<64, 128>(apart_before)
                                      : narrow_before ? step<128, 64>(apart_before) : step<128, 128>(apart_before);
        narrow_before = narrow(), apart_before = apart();
        if (is(kBegin)) {
          finish(item<T>(a, number), before);
          clear();
          number = info >> kItemBit;
        }
      }
      if (narrow_before) values<64>(apart_before); else values<128>(apart_before);
      wgmma_wait<0>();
      finish(item<T>(a, number), state);
    }
    if (which == 0) my_turn();                   // the last offer of a turn is taken
  }
};

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
    constexpr int copying_warps = T::COPIERS / 32, consumers = 256 * T::BLOCKS;
    init(T::kKFull, T::KS, T::FULL ? T::BLOCKS : T::COPIERS + copying_warps);  // the copies of each thread, and the masks of each warp
    init(T::kKEmpty, T::KS, consumers);
    init(T::kVFull, T::VS, T::FULL ? 1 : T::COPIERS);
    init(T::kVEmpty, T::VS, consumers);
    init(T::kListFull, T::LS, T::EXPANDERS);
    init(T::kListEmpty, T::LS, T::COPIERS);
    barrier_init_done();
  }
  if (T::BLOCKS > 1) cluster_sync(); else __syncthreads();
  if (warpgroup == 0) {
    registers_lower<T::P>();
    if constexpr (T::FULL) {
      if (tid == 0) Loader<T>{a, maps, base, rank}.run();
    } else if (tid < T::COPIERS) {
      Copier<T>{a, base, tid, lane}.run();
    } else {
      Expander<T>{a, base, tid - T::COPIERS, lane, (tid - T::COPIERS) / 32}.run();
    }
  } else {
    registers_raise<T::C>();
    Consumer<T>{a, base, __shfl_sync(~0u, warpgroup, 0) - 1, lane, warp, rank}.run();
  }
  if (T::BLOCKS > 1) cluster_sync();             // the other block may still arrive here
}
