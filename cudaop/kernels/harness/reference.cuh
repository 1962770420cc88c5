// Shapes and inputs, attention in float64 on the GPU, and how failures are reported.
#pragma once

#include "cases.h"
#include "device.cuh"

struct Shape {
  int batch, heads, kv_heads, n, d, group;
  double scale;
  int reach = -1, sinks = 0;                     // of a window; reach < 0 is none
  __host__ __device__ i64 groups() const { return (n + group - 1) / group; }
  __host__ __device__ i64 words() const { return (n + 31) / 32; }
  i64 queries() const { return static_cast<i64>(batch) * heads * n; }
  i64 keys() const { return static_cast<i64>(batch) * kv_heads * n; }
  i64 rows() const { return static_cast<i64>(batch) * heads * groups(); }
};

__device__ static double block_reduce(double x, bool take_max) {
  __shared__ double s[128];
  __syncthreads();
  s[threadIdx.x] = x;
  __syncthreads();
  for (int d = 64; d; d /= 2) {
    if (threadIdx.x < d) s[threadIdx.x] = take_max ? fmax(s[threadIdx.x], s[threadIdx.x + d]) : s[threadIdx.x] + s[threadIdx.x + d];
    __syncthreads();
  }
  return s[0];
}

// reference_rows computes queries `rows` (as (b·H + h)·N + i), a block of 128 threads each: weights in p, out and lse.
__global__ void reference_rows(Shape s, const bf16* q, const bf16* k, const bf16* v, const uint32_t* bits, const int* start,
                               const i64* rows, double* p, double* out, double* lse) {
  const i64 at = rows[blockIdx.x], bh = at / s.n;
  const int i = at % s.n, b = bh / s.heads, h = bh % s.heads;
  const i64 kv = (static_cast<i64>(b) * s.kv_heads + h / (s.heads / s.kv_heads)) * s.n;
  const uint32_t* row = bits ? bits + (bh * s.groups() + i / s.group) * s.words() : nullptr;
  p += static_cast<i64>(blockIdx.x) * s.n;
  double top = -INFINITY;
  for (int j = threadIdx.x; j < s.n; j += 128) {
    double x = -INFINITY;
    if (row ? row[j / 32] >> (j % 32) & 1 : (!start || j >= start[b]) && (s.reach < 0 || j < s.sinks || abs(i - j) <= s.reach)) {
      x = 0;
      for (int c = 0; c < s.d; c++) x += static_cast<double>(__bfloat162float(q[at * s.d + c])) * __bfloat162float(k[(kv + j) * s.d + c]);
      x *= s.scale;
    }
    p[j] = x;
    top = fmax(top, x);
  }
  top = block_reduce(top, true);
  double sum = 0;
  for (int j = threadIdx.x; j < s.n; j += 128) {
    p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - top);
    sum += p[j];
  }
  sum = block_reduce(sum, false);
  __syncthreads();
  for (int j = threadIdx.x; j < s.n; j += 128) p[j] = sum > 0 ? p[j] / sum : 0;
  __syncthreads();
  if (threadIdx.x == 0) lse[blockIdx.x] = sum > 0 ? top + log(sum) : -INFINITY;
  for (int c = threadIdx.x; c < s.d; c += 128) {
    double x = 0;
    for (int j = 0; j < s.n; j++) x += p[j] * __bfloat162float(v[(kv + j) * s.d + c]);
    out[static_cast<i64>(blockIdx.x) * s.d + c] = x;
  }
}

static bool small() { return std::getenv("SMALL"); }

static std::vector<i64> sample(i64 total, i64 most) {
  std::vector<i64> r;
  if (total <= most) {
    r.resize(total);
    std::iota(r.begin(), r.end(), 0);
    return r;
  }
  for (i64 i = 0; i < most; i++) r.push_back((i * 2654435761ull + 12345 * i) % total);
  r[0] = 0, r[1] = total - 1;
  std::sort(r.begin(), r.end());
  r.erase(std::unique(r.begin(), r.end()), r.end());
  return r;
}

static Shape shape(int b, int h, int hkv, int n, int d, int group) { return {b, h, hkv, n, d, group, 1 / std::sqrt(static_cast<double>(d))}; }

// lengths are those of the table of attention cases.
static std::vector<int> lengths() {
  if (small()) return {1, 129, 300};
  std::vector<int> all(std::begin(kLengths), std::end(kLengths));
  all.insert(all.end(), std::begin(kLongLengths), std::end(kLongLengths));
  return all;
}

// keep returns numbers of columns for n keys.
static std::vector<int> keep(int n) {
  std::vector<int> all(std::begin(kKeep), std::end(kKeep));
  all.push_back(n / 5), all.push_back(n);
  return all;
}

static bool exact = false;                       // the kernel takes float32, and gets the same numbers in that

__global__ void widen(const bf16* from, float* to, size_t n) {
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n; i += static_cast<size_t>(gridDim.x) * blockDim.x) to[i] = __bfloat162float(from[i]);
}

struct Operand : Buffer<bf16> {
  Buffer<float> wide;
  Operand(size_t n, unsigned seed, float scale) : Buffer(n), wide(exact ? n : 0) {
    fill_normal<<<1024, 256>>>(p, n, seed, scale);
    if (exact) widen<<<1024, 256>>>(p, wide.p, n);
  }
  const void* operand() const { return exact ? static_cast<const void*>(wide.p) : p; }
};

// rise multiplies the rows of matrices [n, d] by 1 to 11, the later the more.
__global__ void rise(bf16* x, size_t count, int n, int d) {
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count; i += static_cast<size_t>(gridDim.x) * blockDim.x)
    x[i] = __float2bfloat16(__bfloat162float(x[i]) * (1 + 10.f * (i / d % n) / n));
}

struct Inputs {
  Shape s;
  Operand q, k, v;
  Inputs(const Shape& s, unsigned seed, float sharp = 1)
      : s(s), q(s.queries() * s.d, seed, sharp), k(s.keys() * s.d, seed + 1, 1), v(s.keys() * s.d, seed + 2, 1) {
    OK(cudaDeviceSynchronize());
  }

  // raise lets scores grow along the keys, beyond what a float32 weight holds if the first keys weigh about 1.
  void raise() {
    rise<<<1024, 256>>>(k.p, s.keys() * s.d, s.n, s.d);
    if (exact) widen<<<1024, 256>>>(k.p, k.wide.p, s.keys() * s.d);
    OK(cudaDeviceSynchronize());
  }
};

static int failures = 0, checks = 0;
static void report(bool good, const char* format, const std::string& what, double x, double y) {
  checks++;
  if (!good) {
    failures++;
    std::printf("FAIL %s: ", what.c_str());
    std::printf(format, x, y);
    std::printf("\n");
  }
}

static std::string name(const Shape& s, const char* more) {
  char b[200];
  std::snprintf(b, sizeof b, "B=%d H=%d Hkv=%d n=%d D=%d group=%d %s", s.batch, s.heads, s.kv_heads, s.n, s.d, s.group, more);
  return b;
}

static double worst_out = 0, worst_lse = 0, worst_score = 0;

__global__ void differences(const uint32_t* a, const uint32_t* b, size_t n, unsigned* count) {
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n; i += static_cast<size_t>(gridDim.x) * blockDim.x)
    if (a[i] != b[i]) atomicAdd(count, 1);
}

// repeat runs f(out) 200 times and compares all bits with those of the first run.
template <class F>
static void repeat(size_t words, const std::string& what, F f) {
  Buffer<uint32_t> first(words), again(words);
  Buffer<unsigned> count(std::vector<unsigned>{0});
  first.poison();
  f(first.p);
  for (int i = 0; i < 200; i++) {
    again.poison();
    f(again.p);
    differences<<<256, 256>>>(first.p, again.p, words, count.p);
  }
  OK(cudaDeviceSynchronize());
  report(count.host()[0] == 0, "%.0f words differ in 200 runs", what + " repeated", count.host()[0], 0);
}
