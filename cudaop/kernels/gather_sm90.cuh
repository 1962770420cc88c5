// The producers of column-sparse attention: the lister turns the bits of an item's groups into lists of keys, and the
// gatherer copies the listed rows of keys and values into the stages. Both are 64 threads.
//
// As in producer_sm90.cuh, the keys of a stage are copied before the values of the stage before it.
#pragma once

#include "pipeline_sm90.cuh"

template <class T>
struct Lister {
  using Bits = typename T::Bits;
  static constexpr int kGroup = kQueries / T::GROUPS;

  const Attention& a;
  const uint32_t base;
  const int tid, lane, warp;
  Stage<T::LS> ls;
  int first = 0;                                 // kBegin and the item's number, for the info word of its first list

  DEVICE uint32_t barrier(int i) const { return base + T::kBarriers + i * 8; }

  // list fills the next list. entry(r) is the key of row r and, from bit kKeyBits on, the groups that keep it, or kNoKey.
  template <class Entry>
  DEVICE void list(int info, Entry entry) {
    constexpr int kRows = kTile / T::LISTERS;
    uint32_t e[kRows];
#pragma unroll
    for (int i = 0; i < kRows; i++) e[i] = entry(tid + T::LISTERS * i);
    barrier_wait(barrier(T::kListEmpty + ls.index), ls.parity ^ 1);
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      const bool live = e[i] != kNoKey;
#pragma unroll
      for (int g = 0; g < T::MASKS; g++) {
        const uint32_t word = __ballot_sync(~0u, live && (T::MASKS == 1 || e[i] >> (kKeyBits + g) & 1));
        if (lane == 0) store_shared(base + T::kListMasks + ((ls.index * T::MASKS + g) * 4 + T::LISTERS / 32 * i + warp) * 4, word);
      }
      store_shared(base + T::kLists + (ls.index * kTile + tid + T::LISTERS * i) * 4, live ? e[i] & ((1u << kKeyBits) - 1) : kNoKey);
    }
    if (tid == 0) store_shared(base + T::kListInfo + ls.index * 4, info | first);
    first = 0;
    barrier_arrive(barrier(T::kListFull + ls.index));
    ls.next();
  }

  // list_shared makes a list of keys that both halves of the queries keep.
  DEVICE void list_shared(Bits& columns) {
    const int masked = T::GROUPS > 2 || columns.have[0] < kTile ? kMasked : 0;
    list((columns.have[0] > 64 ? 0 : kNarrow) | masked, [&](int r) { return columns.template entry<0>(r); });
    columns.template drop<0>(kTile);
  }

  // list_private makes two lists, of the keys that one half of the queries keeps. The remaining shared keys are added to
  // both lists if they fit.
  DEVICE void list_private(Bits& columns) {
    const auto& have = columns.have;
    const int longest = max(have[1], have[2]), more = have[0] + longest <= kTile ? have[0] : 0;
    const int masked = T::GROUPS > 2 || min(have[1], have[2]) < kTile ? kMasked : 0;
    list(kPrivate | (longest + more > 64 ? 0 : kNarrow) | masked,
         [&](int r) { return r < have[1] || more == 0 ? columns.template entry<1>(r) : columns.template entry<0>(r - have[1]); });
    list(0, [&](int r) { return r < have[2] || more == 0 ? columns.template entry<2>(r) : columns.template entry<0>(r - have[2]); });
    columns.template drop<0>(more), columns.template drop<1>(kTile), columns.template drop<2>(kTile);
  }

  // open moves on to the bits of an item.
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
        while (have[0] >= kTile) list_shared(columns);
        if constexpr (T::GROUPS > 1)
          while (min(have[1], have[2]) >= kTile || max(have[1], have[2]) > Bits::kLeft) list_private(columns);
      }
      number = next_item<T>(number);
      if (number < items<T>(a)) open(columns, number);  // its loads complete while the remaining lists are made
      if constexpr (T::GROUPS > 1) {
        while (max(have[1], have[2]) > kTile) list_private(columns);
        if (have[0] + max(have[1], have[2]) > kTile) list_shared(columns);
        if (have[1] + have[2] > 0) list_private(columns);
      }
      if (have[0] > 0) list_shared(columns);
      if (first) list(kNarrow | kMasked, [](int) { return kNoKey; });  // no group keeps anything
    }
    list(kDone, [](int) { return kNoKey; });
  }
};

template <class T>
struct Gatherer {
  static constexpr int kAtOnce = T::GATHERERS / 8, kRows = kTile / kAtOnce;  // 8 threads copy a row

  const Attention& a;
  const uint32_t base;
  const int tid, lane;
  Stage<T::KS> ks;
  Stage<T::VS> vs;
  long long at, at_before;                       // offset of the head's keys and values in elements; that of the last stage of keys

  DEVICE uint32_t barrier(int i) const { return base + T::kBarriers + i * 8; }

  // copy_rows copies the rows of a tile. offset are the byte offsets of this thread's rows, ~0 for a row of zeros.
  DEVICE void copy_rows(uint32_t to, const bf16* from, const uint32_t (&offset)[kRows]) {
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

  // copy_range copies the rows first .. first+127 of a matrix; rows from limit on become zeros.
  DEVICE void copy_range(uint32_t to, const bf16* from, int first, int limit) {
    uint32_t offset[kRows];
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      const int r = first + (tid >> 3) + kAtOnce * i;
      offset[i] = r < limit ? r * (T::D * 2) : ~0u;
    }
    copy_rows(to, from, offset);
  }

  // gather copies the rows that a list names.
  DEVICE void gather(uint32_t to, const bf16* from, int list) {
    uint32_t offset[kRows];
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      const uint32_t key = load_shared(base + T::kLists + (list * kTile + (tid >> 3) + kAtOnce * i) * 4);
      offset[i] = key == kNoKey ? ~0u : key * (T::D * 2);
    }
    copy_rows(to, from, offset);
  }

  // keys fills the next stage of keys. copy(to) copies its rows; mask is this thread's word of its masks.
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

  // begin fills a stage with the queries of an item.
  DEVICE void begin(const Item& it, int number) {
    const bf16* q = a.q + (static_cast<long long>(it.batch) * a.heads + it.head) * a.n * T::D;
    at = static_cast<long long>(key_head(a, it)) * a.n * T::D;
    keys(kBegin | number << kItemBit, 0, [&](uint32_t to) { copy_range(to, q, it.first, a.n); });
  }

  DEVICE void done() { keys(kDone, 0, [](uint32_t) {}); }

  DEVICE void run() {
    int before = -1;                             // the list of the last stage of keys, whose values are not yet copied
    const auto values_before = [&] {
      if (before < 0) return;
      values([&](uint32_t to) { gather(to, a.v + at_before, before); });
      barrier_arrive(barrier(T::kListEmpty + before));
    };
    for (Stage<T::LS> ls;; ls.next()) {
      barrier_wait(barrier(T::kListFull + ls.index), ls.parity);
      const int info = load_shared(base + T::kListInfo + ls.index * 4);
      if (__any_sync(~0u, info & kDone)) break;
      if (__any_sync(~0u, info & kBegin)) begin(item<T>(a, info >> kItemBit), info >> kItemBit);
      const uint32_t mask = tid < 4 * T::MASKS ? load_shared(base + T::kListMasks + (ls.index * T::MASKS * 4 + tid) * 4) : 0;
      keys(info & (kNarrow | kPrivate | kMasked), mask, [&](uint32_t to) { gather(to, a.k + at, ls.index); });
      values_before();
      before = ls.index, at_before = at;
    }
    values_before();
    done();
  }
};
