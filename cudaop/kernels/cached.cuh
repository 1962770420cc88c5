// What the kernels of attention over cached keys share. Some rows of a sequence attend to the cached keys and values of all
// of it, so that one tile of rows reads many keys, and reading them is all that takes time.
//
// An item of work is a tile of rows and the keys that they read: keys by position, or those of a list. Rows of query heads with
// one key head share tiles. Items are divided among blocks. Blocks with a share of one item store partial results, and the
// last of them to arrive adds them up in the order of keys: every run gives the same bits.
#pragma once

#include "common.cuh"

constexpr int kBlock = 128;                      // threads
constexpr int kKeys = 64;                        // of a tile
constexpr int kLeast = 4;                        // tiles of a share: with fewer, combining takes longer than reading

template <class T>
struct CachedOf {
  const T *q, *k, *v;                            // [B, H, rows, D], [B, Hkv, n, D]
  void* out;                                     // null: the log-sum-exp only
  float* lse;
  const int *start, *first;                      // keys by position: the first of each batch row; position of row 0
  const uint32_t *keys, *members;                // lists of keys, `capacity` in each, kNone after the last one
  const int* tiles;                              // [lists + 1], tiles of keys before each list
  long long capacity;
  float* partials;                               // 2 for each block of the grid: [ROWS, D], then [ROWS] of largest score and sum
  uint32_t* arrived;                             // [items], zeros before and after
  int batch, heads, kv_heads, n, rows;
  int from, to;                                  // rows that are computed
  int share;                                     // query heads in a tile
  int group, width;                              // rows of a group, groups of a list
  int reach, sinks;                              // by position, row i sees key j if |i - j| <= reach or j < sinks
  float scale_log2;
  int otype;
  bool bnhd;

  // position is that of a row, where a window needs it.
  DEVICE int position(int row) const { return sinks < n ? __ldg(first) + row : 0; }

  DEVICE long long out_row(int b, int head, int row) const {
    return bnhd ? (static_cast<long long>(b) * rows + row) * heads + head : (static_cast<long long>(b) * heads + head) * rows + row;
  }
};

// The parameters of the kernels, and what they make.
#define CACHED_PARAMETERS(T)                                                                                         \
  const T *q, const T *k, const T *v, void *out, float *lse, const int *start, const int *first, long long reach,    \
      long long sinks,                                                                                               \
      const uint32_t *keys, const uint32_t *members, const int *tiles, long long capacity, float *partials,          \
      uint32_t *arrived, long long batch, long long heads, long long kv_heads, long long n, long long rows,          \
      long long from, long long to, long long share, long long group, long long width,                              \
      double scale, long long otype, long long bnhd
#define CACHED_ARGUMENTS(T)                                                                                          \
  CachedOf<T>{q, k, v, out, lse, start, first, keys, members, tiles, capacity, partials, arrived, static_cast<int>(batch),  \
              static_cast<int>(heads), static_cast<int>(kv_heads), static_cast<int>(n), static_cast<int>(rows),      \
              static_cast<int>(from), static_cast<int>(to), static_cast<int>(share),                                 \
              static_cast<int>(group), static_cast<int>(width), static_cast<int>(reach), static_cast<int>(sinks),    \
              static_cast<float>(scale) * kLog2e, static_cast<int>(otype), bnhd != 0}

constexpr uint32_t kNone = ~0u;                  // fills up the last tile of a list

// KeySpan is the keys that the rows of a batch row read by position: [low, end), and with a window also [later, last).
struct KeySpan {
  int low, end, later, last;

  template <class T>
  DEVICE KeySpan(const CachedOf<T>& a, int b) : low(a.start ? min(max(__ldg(a.start + b), 0), a.n) : 0), end(a.n), later(a.n), last(a.n) {
    if (a.sinks >= a.n) return;
    const int first = __ldg(a.first);
    later = max(low, first + a.from - a.reach), last = min(a.n, first + a.to + a.reach), end = min(a.n, a.sinks);
    if (end >= later) end = max(end, last), later = last;
  }
  DEVICE int low_tiles() const { return (max(end - low, 0) + kKeys - 1) / kKeys; }
  DEVICE int tiles() const { return max(low_tiles() + (max(last - later, 0) + kKeys - 1) / kKeys, 1); }

  // tile returns the first key of a tile, and in count how many it has.
  DEVICE int tile(int t, int& count) const {
    const bool lower = t < low_tiles();
    const int at = lower ? low + t * kKeys : later + (t - low_tiles()) * kKeys;
    count = min(max((lower ? end : last) - at, 0), kKeys);
    return at;
  }
};

// Segment is a block's share of an item.
struct Segment {
  int list, batch, unit, tile;                   // unit: `share` query heads; tile: of rows
  int at, count;                                 // tiles of keys
  int item;
  bool whole;
  int owner, parts;                              // the first block with a share of the item, and the number of such blocks
};

// Work divides the keys among blocks. With few items each is cut into as many shares as there are blocks for it, and a block
// has one. With many the tiles of all items, in order, are cut into equal shares, which end anywhere in an item.
template <int ROWS, class T>
struct Work {
  const CachedOf<T>& a;
  const bool listed;
  int units, group_tiles, tiles, per_list;       // tiles of rows of a list and unit; items of a list
  int cuts;                                      // shares of an item at most; 0: shares end anywhere
  long long total, at, end, grid;                // with cuts: at 0 the block's share is to come

  DEVICE explicit Work(const CachedOf<T>& a) : a(a), listed(a.keys != nullptr), units(a.heads / a.share) {
    const int span = listed ? min(a.group * a.width, a.to - a.from) : a.to - a.from;
    group_tiles = (a.to - a.from + span - 1) / span;
    tiles = (span * a.share + ROWS - 1) / ROWS;
    per_list = listed ? tiles : units * tiles;
    const int items = lists() * per_list;
    at = 0, cuts = 2 * items <= static_cast<int>(gridDim.x) ? gridDim.x / items : 0;
    if (cuts) {
      end = static_cast<int>(blockIdx.x) < items * cuts;
      return;
    }
    total = static_cast<long long>(before(lists())) * per_list;
    grid = min(static_cast<long long>(gridDim.x), max(total / kLeast, 1ll));
    if (blockIdx.x >= grid) at = end = 0; else at = share_of(blockIdx.x), end = share_of(blockIdx.x + 1);
  }

  DEVICE int lists() const { return listed ? a.batch * units * group_tiles : a.batch; }

  // next moves on to the next segment of the block; it returns false at the end.
  DEVICE bool next(Segment& s) {
    if (at >= end) return false;
    int j, length;
    if (cuts) {
      const int item = blockIdx.x / cuts, part = blockIdx.x % cuts;
      s.list = item / per_list, j = item % per_list, length = before(s.list + 1) - before(s.list);
      s.parts = min(cuts, max(length / kLeast, 1)), s.owner = item * cuts;
      if (part >= s.parts) return false;
      s.at = length * part / s.parts, s.count = length * (part + 1) / s.parts - s.at;
      at = end;
    } else {
      s.list = find(at);
      const long long origin = static_cast<long long>(before(s.list)) * per_list;
      length = before(s.list + 1) - before(s.list), j = static_cast<int>((at - origin) / length);
      const long long begin = origin + static_cast<long long>(j) * length;
      s.at = static_cast<int>(at - begin), s.count = static_cast<int>(min(end - at, static_cast<long long>(length - s.at)));
      s.owner = owner(begin), s.parts = owner(begin + length - 1) - s.owner + 1;
      at += s.count;
    }
    s.batch = listed ? s.list / (units * group_tiles) : s.list;
    s.unit = listed ? s.list / group_tiles % units : j / tiles;
    s.tile = j % tiles;
    s.item = s.list * per_list + j;
    s.whole = s.count == length;
    return true;
  }

 private:
  DEVICE long long share_of(long long block) const { return total * block / grid; }
  DEVICE int owner(long long t) const { return static_cast<int>(((t + 1) * grid - 1) / total); }

  // before is the number of tiles of keys before a list.
  DEVICE int before(int list) const {
    if (listed) return __ldg(a.tiles + list);
    if (!a.start) return list * KeySpan(a, 0).tiles();
    int sum = 0;
    for (int b = 0; b < list; b++) sum += KeySpan(a, b).tiles();
    return sum;
  }
  DEVICE int find(long long t) const {
    int low = 0, high = lists();                 // before(low) <= t < before(high), for one tile of rows
    while (high - low > 1) {                     // the lanes of a warp try 32 lists at once
      const int step = (high - low + 31) / 32, i = low + static_cast<int>(threadIdx.x % 32) * step;
      const bool reached = i < high && static_cast<long long>(before(i)) * per_list <= t;
      low += (__popc(__ballot_sync(~0u, reached)) - 1) * step;
      high = min(high, low + step);
    }
    return low;
  }
};

// Rows are the queries of a tile of rows.
struct Rows {
  int low, count, total, first;                  // rows low .. low+count-1 of each head, `total` in all heads; `first` is the tile's

  template <int ROWS, class T>
  DEVICE Rows(const Work<ROWS, T>& work, const Segment& s) {
    const CachedOf<T>& a = work.a;
    low = a.from + (work.listed ? s.list % work.group_tiles * a.group * a.width : 0);
    count = work.listed ? min(a.to - low, a.group * a.width) : a.to - low;
    total = count * a.share, first = s.tile * ROWS;
  }
  // live is the number of rows in the tile.
  template <int ROWS> DEVICE int live() const { return min(max(total - first, 0), ROWS); }
  DEVICE int head(int r) const { return (first + r) / count; }
  DEVICE int query(int r) const { return low + (first + r) % count; }
  // member is the bit of a list's members that stands for a row's head and group.
  DEVICE int member(int r, int group, int width) const { return head(r) * width + (first + r) % count / group; }
};

// load_strong reads what another multiprocessor may have written, from global or shared memory.
DEVICE float4 load_strong4(const float* at) {
  float4 x;
  asm volatile("ld.relaxed.gpu.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "l"(at) : "memory");
  return x;
}
DEVICE float2 load_strong2(const float* at) {
  float2 x;
  asm volatile("ld.relaxed.gpu.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "l"(at) : "memory");
  return x;
}

// Results are those of a block in shared memory: `parts` of them, each of ROWS rows of D sums of weighted values, `pitch`
// floats apart, and of the largest score and the sum of weights of each row.
struct Results {
  float *values, *tops;
  int parts, rows, pitch;                        // rows: distance between parts
};

// Finish turns results into rows of the output.
template <int ROWS, int D, class T>
struct Finish {
  static constexpr int kBatch = 8, kTogether = 2;  // tasks of 4 columns of a row, and parts, that a thread loads together
  static constexpr int kBatchRows = kBatch * kBlock / (D / 4);
  static constexpr int kPartial = ROWS * (D + 2);

  const Work<ROWS, T>& work;
  const Segment& s;
  const int live, dim;                           // rows of the tile, columns of a head
  const long long* out_rows;                     // [ROWS] in shared memory, as are the next two
  float2* totals;                                // [ROWS]
  int* last;

  // run adds up the parts of a block and writes rows of the output, or a partial result. The last block of an item adds up
  // the partial results of all. All threads call it.
  DEVICE void run(const Results& of) const {
    bool mine = true;                            // the parts are those of the block
#pragma unroll 1
    while (true) {
      const bool final = s.whole || !mine;
      const auto values = [&](int p) { return mine ? of.values + p * of.rows * of.pitch : work.a.partials + partial(s.owner + p); };
      const auto tops = [&](int p) { return mine ? of.tops + 2 * p * of.rows : work.a.partials + partial(s.owner + p) + ROWS * D; };
      const int parts = mine ? of.parts : s.parts, pitch = mine ? of.pitch : D;
      total(parts, tops, final);
      __syncthreads();
      if (work.a.out) {
#pragma unroll 1
        for (int first = 0; first < live; first += kBatchRows) add(first, parts, pitch, values, tops, final);
      }
      if (final || !arrive()) return;
      mine = false;
    }
  }

 private:
  DEVICE static int row(int i) { return (threadIdx.x + i * kBlock) / (D / 4); }
  DEVICE static int column(int i) { return (threadIdx.x + i * kBlock) % (D / 4) * 4; }

  // partial is where a block stores its result of the item: one at the end of its share, another at its start.
  DEVICE long long partial(int block) const { return (2ll * block + (block == s.owner)) * kPartial; }

  // total computes the largest score and the sum of weights of each row.
  template <class Tops>
  DEVICE void total(int parts, Tops tops, bool final) const {
    const float scale = work.a.scale_log2;
    for (int r = threadIdx.x; r < live; r += kBlock) {
      float most = kLowest, sum = 0;
#pragma unroll 1
      for (int first = 0; first < parts; first += kBatch) {
        float2 t[kBatch];
        float high = most;
#pragma unroll
        for (int i = 0; i < kBatch; i++) t[i] = load_strong2(tops(min(first + i, parts - 1)) + 2 * r);
#pragma unroll
        for (int i = 0; i < kBatch; i++) high = fmaxf(high, t[i].x);
        sum *= exp2_approx((most - high) * scale);
        most = high;
#pragma unroll
        for (int i = 0; i < kBatch; i++)
          if (first + i < parts) sum = fmaf(t[i].y, exp2_approx((t[i].x - most) * scale), sum);
      }
      totals[r] = make_float2(most, sum);
      if (!final) __stcg(reinterpret_cast<float2*>(work.a.partials + partial(blockIdx.x) + ROWS * D) + r, totals[r]);
      if (final && work.a.lse) {
        const Rows rows(work, s);
        const int head = s.unit * work.a.share + rows.head(r);
        work.a.lse[(static_cast<long long>(s.batch) * work.a.heads + head) * work.a.rows + rows.query(r)] = sum > 0 ? (most * scale + log2f(sum)) * kLn2 : -CUDART_INF_F;
      }
    }
  }

  // add computes the rows first .. first+kBatchRows-1. Rows that are not live have any values.
  template <class Values, class Tops>
  DEVICE void add(int first, int parts, int pitch, Values values, Tops tops, bool final) const {
    float4 sums[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; i++) sums[i] = make_float4(0, 0, 0, 0);
#pragma unroll 1
    for (int p = 0; p < parts; p += kTogether) {
      float4 x[kTogether][kBatch];
      float2 t[kTogether][kBatch];
#pragma unroll
      for (int j = 0; j < kTogether; j++) {
        const float *from = values(min(p + j, parts - 1)), *top = tops(min(p + j, parts - 1));
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
          x[j][i] = load_strong4(from + (first + row(i)) * pitch + column(i));
          t[j][i] = load_strong2(top + 2 * (first + row(i)));
        }
      }
#pragma unroll
      for (int j = 0; j < kTogether; j++) {
        if (p + j >= parts) break;
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
          const float weight = exp2_approx((t[j][i].x - totals[first + row(i)].x) * work.a.scale_log2);
          sums[i].x = fmaf(weight, x[j][i].x, sums[i].x), sums[i].y = fmaf(weight, x[j][i].y, sums[i].y);
          sums[i].z = fmaf(weight, x[j][i].z, sums[i].z), sums[i].w = fmaf(weight, x[j][i].w, sums[i].w);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; i++) {
      const int r = first + row(i), c = column(i);
      if (r >= live) continue;
      if (final) write(r, c, sums[i]);
      else __stcg(reinterpret_cast<float4*>(work.a.partials + partial(blockIdx.x) + r * D + c), sums[i]);
    }
  }

  // arrive counts the block; it returns true in the last one of the item.
  DEVICE bool arrive() const {
    __syncthreads();                             // the partial result is written
    if (threadIdx.x == 0) {
      uint32_t before;
      asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(work.a.arrived + s.item) : "memory");
      *last = before == static_cast<uint32_t>(s.parts - 1);
      if (*last) work.a.arrived[s.item] = 0;
    }
    __syncthreads();
    return *last;
  }

  DEVICE void write(int r, int c, float4 x) const {
    if (c >= dim) return;
    const float sum = totals[r].y, factor = sum > 0 ? 1 / sum : 0;
    const long long at = out_rows[r] * dim + c;
    float* f = static_cast<float*>(work.a.out) + at;
    bf16* h = static_cast<bf16*>(work.a.out) + at;
    x = make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
    if (dim % 4 == 0) {
      if (work.a.otype == kOutF32) *reinterpret_cast<float4*>(f) = x; else *reinterpret_cast<uint2*>(h) = make_uint2(pack(x.x, x.y), pack(x.z, x.w));
      return;
    }
    const float xs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
      if (c + j >= dim) break;
      if (work.a.otype == kOutF32) f[j] = xs[j]; else h[j] = __float2bfloat16(xs[j]);
    }
  }
};
