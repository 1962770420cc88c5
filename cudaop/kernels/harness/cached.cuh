// Attention over cached keys: its inputs, its launches and its reference.
#pragma once

#include <memory>

#include "reference.cuh"

// Case is some rows of a sequence of n tokens: row 0 of q is token `first`, rows from .. to-1 are computed, and the tokens
// first+from .. end-1 are those of the block.
struct Case {
  int batch, heads, kv_heads, n, d, rows, first, from, to, end, group, share;
  int reach = -1, sinks = 0;
  bool padded = false;
  __host__ __device__ int groups() const { return (to - from + group - 1) / group; }
  __host__ __device__ int words() const { return (n + 31) / 32; }
  __host__ __device__ int start(int b) const { return padded && b == 0 ? n / 3 : 0; }
  int width() const { return std::min(groups(), 32 / share); }               // groups of a list
  i64 lists() const { return static_cast<i64>(batch) * (heads / share) * ((groups() + width() - 1) / width()); }
  i64 items(int tile) const {
    const int span = std::min(width() * group, to - from);
    return std::max(lists() * ((span * share + tile - 1) / tile), static_cast<i64>(batch) * (heads / share) * (((to - from) * share + tile - 1) / tile));
  }
  i64 queries() const { return static_cast<i64>(batch) * heads * rows; }
  i64 keys() const { return static_cast<i64>(batch) * kv_heads * n; }
  i64 bit_rows() const { return static_cast<i64>(batch) * heads * groups(); }
  double scale() const { return 1 / std::sqrt(static_cast<double>(d)); }
};

static std::string name(const Case& c, const char* more) {
  char b[300];
  std::snprintf(b, sizeof b, "%s B=%d H=%d/%d n=%d D=%d rows=%d of them %d..%d first=%d group=%d share=%d reach=%d sinks=%d%s", more, c.batch, c.heads, c.kv_heads,
                c.n, c.d, c.rows, c.from, c.to, c.first, c.group, c.share, c.reach, c.sinks, c.padded ? " padded" : "");
  return b;
}

// cached_reference computes one row, a block of 128 threads each: weights in p, out and lse. A row sees the keys of its
// group's bits and of the block, or without bits those from its start on and in its window.
__global__ void cached_reference(Case c, const bf16* q, const bf16* k, const bf16* v, const uint32_t* bits, const i64* rows, double* p, double* out, double* lse) {
  const i64 at = rows[blockIdx.x], bh = at / c.rows;
  const int i = at % c.rows, b = bh / c.heads, h = bh % c.heads;
  const i64 kv = (static_cast<i64>(b) * c.kv_heads + h / (c.heads / c.kv_heads)) * c.n;
  const uint32_t* row = bits ? bits + (bh * c.groups() + (i - c.from) / c.group) * c.words() : nullptr;
  p += static_cast<i64>(blockIdx.x) * c.n;
  double top = -INFINITY;
  for (int j = threadIdx.x; j < c.n; j += 128) {
    double x = -INFINITY;
    const bool sees = row ? (row[j / 32] >> (j % 32) & 1) || (j >= c.first + c.from && j < c.end)
                          : j >= c.start(b) && (c.reach < 0 || j < c.sinks || abs(c.first + i - j) <= c.reach);
    if (sees) {
      x = 0;
      for (int e = 0; e < c.d; e++) x += static_cast<double>(__bfloat162float(q[at * c.d + e])) * __bfloat162float(k[(kv + j) * c.d + e]);
      x /= sqrt(static_cast<double>(c.d));
    }
    p[j] = x;
    top = fmax(top, x);
  }
  top = block_reduce(top, true);
  double sum = 0;
  for (int j = threadIdx.x; j < c.n; j += 128) {
    p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - top);
    sum += p[j];
  }
  sum = block_reduce(sum, false);
  __syncthreads();
  for (int j = threadIdx.x; j < c.n; j += 128) p[j] = sum > 0 ? p[j] / sum : 0;
  __syncthreads();
  if (threadIdx.x == 0) lse[blockIdx.x] = sum > 0 ? top + log(sum) : -INFINITY;
  for (int e = threadIdx.x; e < c.d; e += 128) {
    double x = 0;
    for (int j = 0; j < c.n; j++) x += p[j] * __bfloat162float(v[(kv + j) * c.d + e]);
    out[static_cast<i64>(blockIdx.x) * c.d + e] = x;
  }
}

// Kernels are those of one element type and head dimension, from the modules of a folder.
struct Kernels {
  std::unique_ptr<Kernel> attn, scores, lists, tiles;
  int tile;                                      // rows
  Kernels(const std::string& folder, bool f32, int d) : tile(f32 ? 32 : 64) {
    const std::string type = f32 ? "f32" : "sm80", suffix = "_" + type + "_d" + std::to_string(f32 ? 256 : d);
    const auto load = [&](const std::string& file, const std::string& kernel) { return std::make_unique<Kernel>((folder + "/" + file + ".cubin").c_str(), kernel.c_str()); };
    attn = load("cachedattn_" + type, "cachedattn" + suffix);
    scores = load("scorecollect_" + type, f32 ? "scorecollect_f32" : "scorecollect" + suffix);
    lists = load("columnlists", "columnlists");
    tiles = load("columnlists", "columnlists_tiles");
  }
};

// Layer has the inputs and the memory of one attention.
struct Layer {
  Case c;
  Operand q, k, v;
  Buffer<int> start, first;
  Buffer<uint32_t> arrived, keys, members;
  Buffer<int> counts;
  Buffer<float> partials;
  i64 capacity;

  static std::vector<int> starts(const Case& c) {
    std::vector<int> s;
    for (int b = 0; b < c.batch; b++) s.push_back(c.start(b));
    return s;
  }
  Layer(const Case& c, const Kernels& kernels, unsigned seed, float sharp = 1, i64 keep = -1)
      : c(c), q(c.queries() * c.d, seed, sharp), k(c.keys() * c.d, seed + 1, 1), v(c.keys() * c.d, seed + 2, 1), start(starts(c)), first(std::vector<int>{c.first}), arrived(c.items(kernels.tile)),
        keys(c.lists() * room(c, keep)), members(c.lists() * room(c, keep)), counts(c.lists() + 1),
        partials(2 * 8 * static_cast<size_t>(kernels.attn->sms) * kernels.tile * 258), capacity(room(c, keep)) {
    OK(cudaMemset(arrived.p, 0, 4 * arrived.n));
    keys.poison(), members.poison(), counts.poison(), partials.poison();
    OK(cudaDeviceSynchronize());
  }
  // room is the number of keys that a list may have.
  static i64 room(const Case& c, i64 keep) {
    const i64 most = keep < 0 ? c.n : std::min<i64>(c.n, keep * c.share * c.width() + c.end - c.first - c.from);
    return (most + 63) / 64 * 64;
  }
  const int* padding() const { return c.padded ? start.p : nullptr; }

  // items is an upper bound of the blocks that have work.
  void run(const Kernels& k8, void* out, float* lse, int otype, bool bnhd, i64 items, bool listed) const {
    const bool window = c.reach >= 0 && !listed;
    k8.attn->run(items, q.operand(), k.operand(), v.operand(), out, lse, listed ? nullptr : padding(), first.p, i64(window ? c.reach : 0), i64(window ? c.sinks : c.n),
                 listed ? keys.p : nullptr, listed ? members.p : nullptr, listed ? counts.p : nullptr, capacity, partials.p, arrived.p, i64(c.batch), i64(c.heads), i64(c.kv_heads),
                 i64(c.n), i64(c.rows), i64(c.from), i64(c.to), i64(c.share), i64(c.group), i64(c.width()), c.scale(), i64(otype), i64(bnhd), i64(c.d));
  }
  void dense(const Kernels& k8, void* out, float* lse, int otype, bool bnhd, i64 items = 1 << 20) const { run(k8, out, lse, otype, bnhd, items, false); }
  void columns(const Kernels& k8, void* out, int otype, bool bnhd, i64 items = 1 << 20) const { run(k8, out, nullptr, otype, bnhd, items, true); }
  void lists(const Kernels& k8, const uint32_t* bits) const {
    k8.lists->run(c.lists(), bits, keys.p, members.p, counts.p, i64(c.batch), i64(c.heads), i64(c.groups()), i64(c.n), i64(c.share), i64(c.width()), i64(c.first + c.from), i64(c.end), capacity);
    k8.tiles->run(1, counts.p, c.lists());
  }
  void scores(const Kernels& k8, const float* lse, void* out, i64 pitch, int stype) const {
    k8.scores->run(static_cast<i64>(c.batch) * c.heads * ((c.n + 63) / 64), q.operand(), k.operand(), lse, out, padding(), i64(c.batch), i64(c.heads), i64(c.kv_heads), i64(c.n), i64(c.group),
                   c.scale(), pitch, i64(stype), i64(c.rows), i64(c.from), i64(c.to), i64(c.first), i64(c.d));
  }
};
