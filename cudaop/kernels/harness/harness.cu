// Checks and times the kernels on a GPU, without Go: it loads a built module and launches its kernels as README.md says.
//
//   harness check dense|window|sparse|score MODULE KERNEL D GROUP   against float64, on all shapes
//   harness check topk MODULE KERNEL                                against a sort on the host
//   harness time dense|window|sparse|score|topk MODULE KERNEL D GROUP [LABEL]
//
// Every check of attention is made twice, with the output by heads and by tokens.
//
// LONG=1 times 100 ms of launches after 60 ms of them, when power has lowered the clock.
// SMALL=1 leaves a few tiny shapes, for compute-sanitizer. A kernel that hangs is the caller's to stop: use timeout(1).
// check exits with 1 if anything is wrong.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

using bf16 = __nv_bfloat16;
using i64 = long long;

static void ok(cudaError_t e, const char* what) {
  if (e != cudaSuccess) { std::printf("FAIL %s: %s\n", what, cudaGetErrorString(e)); std::exit(1); }
}
static void ok(CUresult e, const char* what) {
  const char* s = "?";
  if (e != CUDA_SUCCESS) { cuGetErrorString(e, &s); std::printf("FAIL %s: %s\n", what, s); std::exit(1); }
}
#define OK(x) ok(x, #x)

// --- Device memory and inputs --------------------------------------------------------------------------------------

template <class T>
struct Buffer {
  T* p = nullptr;
  size_t n = 0;
  explicit Buffer(size_t n) : n(n) { OK(cudaMalloc(&p, std::max<size_t>(n, 1) * sizeof(T))); }
  Buffer(const std::vector<T>& v) : Buffer(v.size()) { OK(cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice)); }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cudaFree(p); }
  void poison() { OK(cudaMemset(p, 0xFF, n * sizeof(T))); }
  std::vector<T> host() const {
    std::vector<T> v(n);
    OK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
  }
};

__host__ __device__ static inline uint32_t hash(unsigned long long x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return static_cast<uint32_t>((x ^ x >> 31) >> 16);
}

__global__ void fill_normal(bf16* p, size_t n, unsigned seed, float scale) {
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n; i += static_cast<size_t>(gridDim.x) * blockDim.x) {
    const float u = (hash(i * 2 + (static_cast<unsigned long long>(seed) << 40)) + 0.5f) / 4294967296.f;
    const float v = (hash(i * 2 + 1 + (static_cast<unsigned long long>(seed) << 40)) + 0.5f) / 4294967296.f;
    p[i] = __float2bfloat16(scale * sqrtf(-2 * logf(fmaxf(u, 1e-9f))) * cosf(6.2831853f * v));
  }
}

// fill_bits makes rows of random columns, exactly keep in each. share of them are the same in all groups of 128 queries.
__global__ void fill_bits(uint32_t* bits, i64 rows, int groups, int n, int keep, int per_block, float share, unsigned seed) {
  const int words = (n + 31) / 32;
  const i64 r = blockIdx.x;
  const int u = r % groups;
  const i64 block = (r / groups) * ((groups + per_block - 1) / per_block) + u / per_block;
  const double d = static_cast<double>(keep) / n, common = share * d, own = (d - common) / (1 - common);
  uint32_t* row = bits + r * words;
  for (int w = threadIdx.x; w < words; w += blockDim.x) {
    uint32_t x = 0;
    for (int b = 0; b < 32 && w * 32 + b < n; b++) {
      const unsigned long long j = w * 32 + b;
      const bool c = hash((block << 20 | j) + (static_cast<unsigned long long>(seed) << 50)) < common * 4294967295.;
      const bool o = hash((r << 20 | j) + (static_cast<unsigned long long>(seed + 77) << 50)) < own * 4294967295.;
      x |= static_cast<uint32_t>(c || o) << b;
    }
    row[w] = x;
  }
  __syncthreads();
  if (threadIdx.x) return;
  int count = 0;
  for (int w = 0; w < words; w++) count += __popc(row[w]);
  for (i64 i = 0; count != keep; i++) {          // a few too many or too few, anywhere
    const int j = hash(i * 7919 + r) % n;
    const uint32_t bit = 1u << j % 32;
    if (count < keep && !(row[j / 32] & bit)) row[j / 32] |= bit, count++;
    else if (count > keep && (row[j / 32] & bit)) row[j / 32] &= ~bit, count--;
  }
}

// --- Modules -------------------------------------------------------------------------------------------------------

struct Kernel {
  CUfunction f;
  i64 launch[4];
  int sms, cluster;

  Kernel(const char* module, const char* name) {
    OK(cudaFree(0));
    CUmodule m;
    OK(cuModuleLoad(&m, module));
    OK(cuModuleGetFunction(&f, m, name));
    CUdeviceptr p;
    size_t size;
    OK(cuModuleGetGlobal(&p, &size, m, (std::string(name) + "_launch").c_str()));
    OK(cuMemcpyDtoH(launch, p, sizeof launch));
    if (const char* c = std::getenv("PER_SM")) launch[3] = std::atoi(c);   // other than the kernel asks for
    if (launch[1] > 48 << 10) OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(launch[1])));
    OK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    int width = 0;
    OK(cuFuncGetAttribute(&width, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, f));
    cluster = std::max(width, 1);
  }

  template <class... A>
  void run(i64 items, const A&... a) const {
    i64 values[] = {word(a)...};
    i64* value = values;
    void* pointers[] = {place(a, value++)...};
    const i64 blocks = launch[3] ? std::min(items, launch[3] * sms) : items, grid = (blocks + cluster - 1) / cluster * cluster;
    OK(cuLaunchKernel(f, static_cast<unsigned>(grid), 1, 1, static_cast<unsigned>(launch[0]), 1, 1, static_cast<unsigned>(launch[1]), nullptr, pointers, nullptr));
  }

  static i64 word(i64 x) { return x; }
  static i64 word(double x) { i64 y; std::memcpy(&y, &x, 8); return y; }
  static i64 word(const void* p) { return reinterpret_cast<i64>(p); }
  static i64 word(const CUtensorMap&) { return 0; }
  template <class T> static void* place(const T&, i64* value) { return value; }
  static void* place(const CUtensorMap& map, i64*) { return const_cast<CUtensorMap*>(&map); }
};

// boxes is the tensor map of count matrices [n, d] at p.
static CUtensorMap boxes(const void* p, i64 count, i64 n, i64 d) {
  CUtensorMap map;
  const cuuint64_t size[] = {cuuint64_t(d), cuuint64_t(n), cuuint64_t(count)}, pitch[] = {cuuint64_t(2 * d), cuuint64_t(2 * d * n)};
  const cuuint32_t box[] = {64, 64, 1}, step[] = {1, 1, 1};
  OK(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(p), size, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                            CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}

// --- References in float64 -----------------------------------------------------------------------------------------

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

// compare holds out and lse to the reference, in relative L2 and absolute error. out may be off by allowed.
static void compare(const Inputs& in, double allowed, const uint32_t* bits, const int* start, const std::vector<int>& starts, const std::vector<float>& out,
                    const std::vector<float>& lse, const std::string& what) {
  const Shape& s = in.s;
  std::vector<i64> rows;
  for (i64 r : sample(s.queries(), s.n > 1000 ? 400 : 4000))
    if (starts.empty() || bits || r % s.n >= starts[r / s.n / s.heads]) rows.push_back(r);
  if (rows.empty()) return;
  Buffer<i64> at(rows);
  Buffer<double> p(rows.size() * s.n), o(rows.size() * s.d), l(rows.size());
  reference_rows<<<static_cast<unsigned>(rows.size()), 128>>>(s, in.q.p, in.k.p, in.v.p, bits, start, at.p, p.p, o.p, l.p);
  OK(cudaDeviceSynchronize());
  const auto ro = o.host(), rl = l.host();
  double num = 0, den = 0, worst = 0;
  for (size_t i = 0; i < rows.size(); i++) {
    for (int c = 0; c < s.d; c++) {
      const double x = out[rows[i] * s.d + c], y = ro[i * s.d + c];
      num += (x - y) * (x - y), den += y * y;
    }
    const double x = lse[rows[i]], y = rl[i];
    worst = x == y ? worst : std::isfinite(x - y) ? std::max(worst, std::abs(x - y)) : INFINITY;
  }
  for (float x : out)
    if (std::isnan(x)) { report(false, "%.0f", what + ": NaN or unwritten output", 0, 0); return; }
  const double error = den > 0 ? std::sqrt(num / den) : num;
  worst_out = std::max(worst_out, error), worst_lse = std::max(worst_lse, worst);
  const double allowed_lse = exact ? 5e-5 : 1e-3;
  report(error <= allowed, "relative L2 error %.2e, want <= %.0e", what, error, allowed);
  report(worst <= allowed_lse, "log-sum-exp off by %.2e, want <= %.0e", what + " lse", worst, allowed_lse);
}

static std::vector<float> floats(const Buffer<uint8_t>& b, size_t n, int otype) {
  const auto raw = b.host();
  std::vector<float> f(n);
  for (size_t i = 0; i < n; i++) {
    if (otype) std::memcpy(&f[i], &raw[4 * i], 4);
    else { uint32_t x = raw[2 * i] << 16 | static_cast<uint32_t>(raw[2 * i + 1]) << 24; std::memcpy(&f[i], &x, 4); }
  }
  return f;
}

static i64 items(const Kernel& kernel, const Shape& s, bool by_group) {
  const i64 rows = kernel.launch[2];
  return static_cast<i64>(s.batch) * s.heads * (by_group ? s.groups() * ((s.group + rows - 1) / rows) : (s.n + rows - 1) / rows);
}

// Kernels for float32 take the head dimension last; the others do not look at it.
struct Attention {
  const Kernel& kernel;
  std::string kind;
  bool by_group, mapped;                         // the kernel takes tensor maps of q, k and v
  void operator()(const Inputs& in, void* out, float* lse, const uint32_t* bits, const int* start, int otype, bool by_tokens = false,
                  const int* span = nullptr) const {
    const Shape& s = in.s;
    const i64 batch = s.batch, heads = s.heads, kv_heads = s.kv_heads, n = s.n, d = s.d, tokens = by_tokens;
    if (kind == "sparse")
      kernel.run(items(kernel, s, by_group), in.q.operand(), in.k.operand(), in.v.operand(), out, lse, bits, s.heads * s.groups() * s.words(), s.groups() * s.words(),
                 batch, heads, kv_heads, n, static_cast<i64>(s.group), s.scale, static_cast<i64>(otype), tokens, span, d);
    else if (kind == "window")
      kernel.run(items(kernel, s, false), in.q.operand(), in.k.operand(), in.v.operand(), out, lse, start, static_cast<i64>(s.reach), static_cast<i64>(s.sinks),
                 batch, heads, kv_heads, n, s.scale, static_cast<i64>(otype), tokens, span, d);
    else if (mapped)
      kernel.run(items(kernel, s, false), boxes(in.q.p, batch * heads, n, d), boxes(in.k.p, batch * kv_heads, n, d), boxes(in.v.p, batch * kv_heads, n, d), out, lse, start,
                 batch, heads, kv_heads, n, s.scale, static_cast<i64>(otype), tokens, span);
    else
      kernel.run(items(kernel, s, false), in.q.operand(), in.k.operand(), in.v.operand(), out, lse, start, batch, heads, kv_heads, n, s.scale, static_cast<i64>(otype), tokens, span, d);
  }
};

// check_by_tokens wants the same bits of an output by tokens, and nothing written before and behind it.
static void check_by_tokens(const Attention& run, const Inputs& in, const uint32_t* bits, const int* start, int otype,
                            const std::vector<uint8_t>& out, const std::vector<float>& lse, const std::string& what) {
  const Shape& s = in.s;
  const i64 row = s.d * (otype ? 4 : 2), guard = 4096;
  Buffer<uint8_t> moved(s.queries() * row + 2 * guard);
  Buffer<float> same(s.queries());
  moved.poison(), same.poison();
  run(in, moved.p + guard, same.p, bits, start, otype, true);
  OK(cudaDeviceSynchronize());
  const std::vector<uint8_t> got = moved.host();
  i64 wrong = 0, outside = 0;
  for (i64 i = 0; i < s.queries(); i++) {
    const i64 batch = i / s.n / s.heads, head = i / s.n % s.heads, token = i % s.n;
    wrong += std::memcmp(&got[guard + ((batch * s.n + token) * s.heads + head) * row], &out[i * row], row) != 0;
  }
  for (i64 i = 0; i < guard; i++) outside += (got[i] != 0xFF) + (got[got.size() - 1 - i] != 0xFF);
  report(wrong == 0 && outside == 0, "%.0f rows differ, %.0f bytes written outside", what, wrong, outside);
  const std::vector<float> got_lse = same.host();
  report(std::memcmp(got_lse.data(), lse.data(), 4 * lse.size()) == 0, "%.0f", what + ": another log-sum-exp", 0, 0);
}

// check_span wants the same bits of the queries of some spans, and nothing written of queries so far away that they share no
// item with them.
static void check_span(const Attention& run, const Inputs& in, const uint32_t* bits, const int* start, int otype,
                       const std::vector<uint8_t>& out, const std::string& what) {
  const Shape& s = in.s;
  const int n = s.n, spans[][2] = {{0, 1}, {n - 1, n}, {n / 2, n / 2 + 1}, {n / 3, n - n / 3}, {0, n}, {0, 0}, {n / 2, n / 2}};
  constexpr int kItem = 256;                     // queries of the largest item, of a cluster
  const i64 row = s.d * (otype ? 4 : 2);
  for (const auto& span : spans) {
    Buffer<int> at(std::vector<int>{span[0], span[1]});
    Buffer<uint8_t> part(s.queries() * row);
    part.poison();
    run(in, part.p, nullptr, bits, start, otype, false, at.p);
    OK(cudaDeviceSynchronize());
    const std::vector<uint8_t> got = part.host();
    i64 wrong = 0, more = 0;
    for (i64 i = 0; i < s.queries(); i++) {
      const i64 token = i % n;
      if (token >= span[0] && token < span[1]) wrong += std::memcmp(&got[i * row], &out[i * row], row) != 0;
      else if (span[0] >= span[1] || token <= span[0] - kItem || token >= span[1] - 1 + kItem)
        more += std::count(&got[i * row], &got[(i + 1) * row], 0xFF) != row;
    }
    report(wrong == 0 && more == 0, "%.0f wanted rows differ, %.0f others are written", what + " of " + std::to_string(span[0]) + " to " + std::to_string(span[1]), wrong, more);
  }
}

static void check_one(const Attention& run, const Inputs& in, const uint32_t* bits, const std::vector<int>& starts, int otype, const std::string& what) {
  const Shape& s = in.s;
  Buffer<uint8_t> out(s.queries() * s.d * (otype ? 4 : 2));
  Buffer<float> lse(s.queries());
  Buffer<int> start(starts);
  out.poison(), lse.poison();
  if (small()) std::printf("%s\n", what.c_str()), std::fflush(stdout);
  run(in, out.p, lse.p, bits, starts.empty() ? nullptr : start.p, otype);
  const cudaError_t e = cudaDeviceSynchronize();
  if (e != cudaSuccess) { std::printf("FAIL %s: %s\n", what.c_str(), cudaGetErrorString(e)); std::exit(1); }
  compare(in, exact && otype ? 1e-5 : 3e-3, bits, starts.empty() ? nullptr : start.p, starts, floats(out, s.queries() * s.d, otype), lse.host(), what);
  check_by_tokens(run, in, bits, starts.empty() ? nullptr : start.p, otype, out.host(), lse.host(), what + ", by tokens");
  check_span(run, in, bits, starts.empty() ? nullptr : start.p, otype, out.host(), what + ", queries");
}

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

static Shape shape(int b, int h, int hkv, int n, int d, int group) { return {b, h, hkv, n, d, group, 1 / std::sqrt(static_cast<double>(d))}; }

static const std::vector<int> kLengths = {1, 31, 32, 33, 127, 128, 129, 191, 193, 1000, 4096, 4097};

static void check_dense(const Attention& run, int d) {
  for (int n : small() ? std::vector<int>{1, 129, 300} : kLengths) {
    for (int ratio : {1, 7}) {
      const Inputs in(shape(2, ratio == 1 ? 2 : 7, ratio == 1 ? 2 : 1, n, d, 128), n, ratio == 7 ? 6 : 1);
      check_one(run, in, nullptr, {}, ratio == 7, name(in.s, "dense"));
      check_one(run, in, nullptr, {n / 3, 0}, ratio == 1, name(in.s, "dense, padded"));
    }
  }
  Inputs rising(shape(1, 2, 1, small() ? 300 : 2000, d, 128), 6, 4);
  rising.raise();
  check_one(run, rising, nullptr, {}, 1, name(rising.s, "dense, rising"));
  if (small()) return;
  const Inputs in(shape(1, 8, 2, 2000, d, 128), 5);
  repeat(in.s.queries() * d / 2, "dense", [&](uint32_t* out) { run(in, out, nullptr, nullptr, nullptr, 0); });
}

static Shape window(Shape s, int reach, int sinks) {
  s.reach = reach, s.sinks = sinks;
  return s;
}

static void check_window(const Attention& run, int d) {
  for (int n : small() ? std::vector<int>{1, 129, 300} : kLengths) {
    const int windows[][2] = {{0, 0}, {1, 5}, {20, n / 3}, {100, 70}, {n, 0}, {3, n}};
    int turn = 0;
    for (const auto& w : windows) {
      const bool gqa = ++turn % 2;
      const Inputs in(window(shape(2, gqa ? 7 : 2, gqa ? 1 : 2, n, d, 128), w[0], w[1]), n + turn, gqa ? 1 : 6);
      char more[60];
      std::snprintf(more, sizeof more, "window reach=%d sinks=%d", w[0], w[1]);
      check_one(run, in, nullptr, {}, gqa, name(in.s, more));
      check_one(run, in, nullptr, {n / 3, 0}, !gqa, name(in.s, more) + ", padded");
    }
  }
  if (small()) return;
  const Inputs in(window(shape(1, 8, 2, 2000, d, 128), 128, 200), 5);
  repeat(in.s.queries() * d / 2, "window", [&](uint32_t* out) { run(in, out, nullptr, nullptr, nullptr, 0); });
}

static void check_sparse(const Attention& run, int d, int group) {
  for (int n : small() ? std::vector<int>{1, 129, 300} : kLengths) {
    int turn = 0;
    for (int k : {1, 7, 63, 64, 65, 127, 128, 129, n / 5, n}) {
      if (k > n || k < 1 || (small() && k != 7 && k != n / 5)) continue;
      const bool gqa = ++turn % 2;
      const Inputs in(shape(gqa ? 1 : 2, gqa ? 7 : 2, gqa ? 1 : 2, n, d, group), n + k, gqa ? 1 : 6);
      const Shape& s = in.s;
      for (float share : {0.f, .7f}) {
        Buffer<uint32_t> bits(s.rows() * s.words());
        fill_bits<<<static_cast<unsigned>(s.rows()), 128>>>(bits.p, s.rows(), static_cast<int>(s.groups()), n, k, std::max(1, 128 / group), share, k);
        OK(cudaDeviceSynchronize());
        char more[60];
        std::snprintf(more, sizeof more, "k=%d share=%.1f", k, share);
        check_one(run, in, bits.p, {}, turn % 3 == 0, name(s, more));
      }
    }
  }
  // Groups that differ in how much they keep, among them nothing.
  for (int n : small() ? std::vector<int>{300} : std::vector<int>{100, 700, 3000}) {
    const Inputs in(shape(2, 3, 1, n, d, group), n);
    const Shape& s = in.s;
    std::vector<uint32_t> bits(s.rows() * s.words());
    for (i64 r = 0; r < s.rows(); r++) {
      const uint32_t density = hash(r) % 5;
      for (int j = 0; j < n; j++)
        if (hash(r << 20 | j) % 5 < density && !(density == 2 && j > n / 2)) bits[r * s.words() + j / 32] |= 1u << j % 32;
    }
    Buffer<uint32_t> device(bits);
    check_one(run, in, device.p, {}, 0, name(s, "uneven"));
  }
  for (float share : {0.f, .7f}) {
    Inputs in(shape(1, 2, 1, small() ? 300 : 2000, d, group), 6, 4);
    in.raise();
    const Shape& s = in.s;
    Buffer<uint32_t> bits(s.rows() * s.words());
    fill_bits<<<static_cast<unsigned>(s.rows()), 128>>>(bits.p, s.rows(), static_cast<int>(s.groups()), s.n, s.n / 2, std::max(1, 128 / group), share, 9);
    OK(cudaDeviceSynchronize());
    check_one(run, in, bits.p, {}, 1, name(s, "rising"));
  }
  if (small()) return;
  const Inputs in(shape(1, 8, 2, 2000, d, group), 5);
  Buffer<uint32_t> bits(in.s.rows() * in.s.words());
  fill_bits<<<static_cast<unsigned>(in.s.rows()), 128>>>(bits.p, in.s.rows(), static_cast<int>(in.s.groups()), 2000, 400, std::max(1, 128 / group), .5f, 3);
  repeat(in.s.queries() * d / 2, "sparse", [&](uint32_t* out) { run(in, out, nullptr, bits.p, nullptr, 0); });
}

// exact_lse is the reference's log-sum-exp of all rows, as float32.
static std::vector<float> exact_lse(const Inputs& in, const int* start) {
  const Shape& s = in.s;
  std::vector<float> lse(s.queries());
  const i64 most = 2048;
  for (i64 at = 0; at < s.queries(); at += most) {
    std::vector<i64> rows(std::min(most, s.queries() - at));
    std::iota(rows.begin(), rows.end(), at);
    Buffer<i64> r(rows);
    Buffer<double> p(rows.size() * s.n), o(rows.size() * s.d), l(rows.size());
    reference_rows<<<static_cast<unsigned>(rows.size()), 128>>>(s, in.q.p, in.k.p, in.v.p, nullptr, start, r.p, p.p, o.p, l.p);
    const auto h = l.host();
    for (size_t i = 0; i < h.size(); i++) lse[at + i] = static_cast<float>(h[i]);
  }
  return lse;
}

static void run_score(const Kernel& kernel, const Inputs& in, const float* lse, void* out, const int* start, i64 pitch, int stype) {
  const Shape& s = in.s;
  kernel.run(items(kernel, s, false), in.q.operand(), in.k.operand(), lse, out, start, static_cast<i64>(s.batch), static_cast<i64>(s.heads), static_cast<i64>(s.kv_heads),
             static_cast<i64>(s.n), static_cast<i64>(s.group), s.scale, pitch, static_cast<i64>(stype), static_cast<i64>(s.d));
}

static void check_score(const Kernel& kernel, int d, int group) {
  for (int n : small() ? std::vector<int>{1, 129, 300} : std::vector<int>{1, 31, 33, 127, 128, 129, 191, 193, 1000, 2050}) {
    for (bool padded : {false, true}) {
      const Inputs in(shape(2, 7, 1, n, d, group), n, padded ? 1 : 4);
      const Shape& s = in.s;
      const std::vector<int> starts = {0, n / 3};
      Buffer<int> start(starts);
      const int* device_start = padded ? start.p : nullptr;
      const Buffer<float> lse(exact_lse(in, device_start));
      for (int stype : {0, 1}) {
        const i64 pitch = stype ? n : (n + 7) / 8 * 8;
        Buffer<uint8_t> out(s.rows() * pitch * (stype ? 4 : 2));
        out.poison();
        const std::string what = name(s, padded ? (stype ? "f32 padded" : "log16 padded") : stype ? "f32" : "log16");
        if (small()) std::printf("%s\n", what.c_str()), std::fflush(stdout);
        run_score(kernel, in, lse.p, out.p, device_start, pitch, stype);
        OK(cudaDeviceSynchronize());
        const auto raw = out.host();
        double worst = 0;
        bool zeros = true;
        for (i64 r : sample(s.rows(), 24)) {
          const i64 bh = r / s.groups();
          const int u = static_cast<int>(r % s.groups()), from = padded ? starts[bh / s.heads] : 0;
          std::vector<i64> rows;
          for (int i = std::max(u * group, from); i < std::min((u + 1) * group, n); i++) rows.push_back(bh * n + i);
          std::vector<double> mean(n);
          if (!rows.empty()) {
            Buffer<i64> at(rows);
            Buffer<double> p(rows.size() * n), o(rows.size() * d), l(rows.size());
            reference_rows<<<static_cast<unsigned>(rows.size()), 128>>>(s, in.q.p, in.k.p, in.v.p, nullptr, device_start, at.p, p.p, o.p, l.p);
            const auto h = p.host();
            for (size_t i = 0; i < rows.size(); i++)
              for (int j = 0; j < n; j++) mean[j] += h[i * n + j] / rows.size();
          }
          for (int j = 0; j < n; j++) {
            double x;
            if (stype) {
              float f;
              std::memcpy(&f, &raw[(r * pitch + j) * 4], 4);
              x = f;
            } else {
              uint16_t c;
              std::memcpy(&c, &raw[(r * pitch + j) * 2], 2);
              x = c ? std::exp2((c - 31743.) / 512) : 0;
            }
            if (mean[j] == 0) zeros = zeros && x == 0;
            else if (mean[j] > 1e-18) worst = std::max(worst, std::isnan(x) ? INFINITY : std::abs(x / mean[j] - 1));
          }
        }
        worst_score = std::max(worst_score, worst);
        const double allowed = exact && stype ? 1e-4 : 1e-3;
        report(worst <= allowed, "a score is off by a factor of 1 ± %.2e, want <= %.0e", what, worst, allowed);
        report(zeros, "%.0f", what + ": what padding should score is not 0", 0, 0);
      }
    }
  }
  if (small()) return;
  const Inputs in(shape(1, 4, 2, 2000, d, group), 5);
  const Buffer<float> lse(exact_lse(in, nullptr));
  repeat(in.s.rows() * 2000 / 2, "score", [&](uint32_t* out) { run_score(kernel, in, lse.p, out, nullptr, 2000, 0); });
}

// --- Top-k ---------------------------------------------------------------------------------------------------------

template <class S>
static void check_topk(const Kernel& kernel) {
  const auto rank = [](S s) { return static_cast<double>(s); };
  for (int n : small() ? std::vector<int>{1, 100, 9000} : std::vector<int>{1, 31, 32, 33, 1000, 4097, 8192, 8200, 65536, 65537, 131072}) {
    for (int kind = 0; kind < 7; kind++) {
      const int batch = 2, heads = 1, groups = 3;
      const i64 pitch = kind % 2 ? n : (n + 7) / 8 * 8, words = (n + 31) / 32;
      std::vector<S> scores(batch * heads * groups * pitch);
      for (size_t i = 0; i < scores.size(); i++) {
        const uint32_t x = hash(i * 31 + kind);
        double v = 0;
        switch (kind) {
          case 0: v = sizeof(S) == 2 ? x % 31744 : std::ldexp(1 + x % 65536 / 65536., -static_cast<int>(x >> 16) % 40); break;  // anything
          case 1: v = 17; break;                                                                       // all equal
          case 2: v = 0; break;
          case 3: v = x % 2 ? 1 : 2; break;                                                            // two values
          case 4: v = static_cast<double>(i % pitch); if (sizeof(S) == 2) v = std::min(v, 31743.); break;  // sorted
          case 5: v = sizeof(S) == 2 ? 20000 + x % 50 : (static_cast<int>(x % 100) - 50) * 1e-42; break;   // many ties; denormals of both signs
          case 6: v = i % pitch == static_cast<i64>(n / 2) ? 31743 : 0; break;                         // one stands out
        }
        scores[i] = static_cast<S>(v);
        if constexpr (sizeof(S) == 4)
          if (kind == 0 && x % 97 == 0) scores[i] = NAN;
      }
      Buffer<S> in(scores);
      const std::vector<int> starts = {0, n / 4};
      Buffer<int> start(starts);
      for (int k : {1, n / 5, n - 1, n}) {
        if (k < 1) continue;
        const std::vector<int> keep = {k, std::max(1, k / 2)};
        Buffer<int> keeps(keep);
        Buffer<uint32_t> bits(batch * heads * groups * words);
        bits.poison();
        kernel.run(batch * heads * groups, in.p, bits.p, keeps.p, start.p, static_cast<i64>(batch), static_cast<i64>(heads), static_cast<i64>(groups), static_cast<i64>(n), pitch);
        OK(cudaDeviceSynchronize());
        const auto got = bits.host();
        bool good = true;
        for (int r = 0; r < batch * heads * groups; r++) {
          const int from = starts[r / (heads * groups)], want = std::min(keep[r / (heads * groups)], n - from);
          std::vector<int> order(n - from);
          std::iota(order.begin(), order.end(), from);
          const S* row = &scores[r * pitch];
          std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
            const double x = rank(row[a]), y = rank(row[b]);
            return std::isnan(y) ? !std::isnan(x) : x > y;
          });
          std::vector<uint32_t> expected(words);
          for (int i = 0; i < want; i++) expected[order[i] / 32] |= 1u << order[i] % 32;
          good = good && std::equal(expected.begin(), expected.end(), got.begin() + r * words);
        }
        char what[80];
        std::snprintf(what, sizeof what, "topk n=%d kind=%d k=%d", n, kind, k);
        report(good, "%.0f", std::string(what) + ": another set than the host's", 0, 0);
      }
    }
  }
}

// --- Timing --------------------------------------------------------------------------------------------------------

template <class F>
static double milliseconds(F f) {
  cudaEvent_t a, b;
  OK(cudaEventCreate(&a));
  OK(cudaEventCreate(&b));
  f(), f();
  OK(cudaDeviceSynchronize());
  static const bool lengthy = std::getenv("LONG");
  std::vector<float> t;
  double before = 0, total = 0;
  while (t.size() < 5 || (lengthy ? total < 100 : t.size() < 30 && total < 60)) {
    OK(cudaEventRecord(a));
    f();
    OK(cudaEventRecord(b));
    OK(cudaEventSynchronize(b));
    float x;
    OK(cudaEventElapsedTime(&x, a, b));
    if (lengthy && before < 60) before += x; else t.push_back(x), total += x;
  }
  std::sort(t.begin(), t.end());
  return t[t.size() / 2];
}

static void timed(const char* label, const char* kernel, const Shape& s, double sparsity, double share, double ms, double flops) {
  std::printf("{\"kernel\":\"%s\",\"label\":\"%s\",\"n\":%d,\"heads\":%d,\"kv_heads\":%d,\"head_dim\":%d,\"group\":%d,\"sparsity\":%.2f,\"share\":%.2f,\"ms\":%.4f,\"tflops\":%.1f}\n",
              kernel, label, s.n, s.heads, s.kv_heads, s.d, s.group, sparsity, share, ms, flops / ms / 1e9);
  std::fflush(stdout);
}

static std::vector<std::pair<int, int>> sizes() {
  std::vector<std::pair<int, int>> v;
  const char* list = std::getenv("SIZES");       // n:heads, with commas
  for (const char* p = list ? list : "4096:32,16384:32,65536:8"; *p;) {
    char* end;
    const int n = std::strtol(p, &end, 10), h = std::strtol(end + 1, &end, 10);
    v.push_back({n, h});
    p = *end ? end + 1 : end;
  }
  return v;
}

int main(int argc, char** argv) {
  if (argc < 5) { std::printf("usage: see harness.cu\n"); return 2; }
  const std::string verb = argv[1], kind = argv[2];
  exact = kind != "topk" && std::string(argv[4]).find("_f32") != std::string::npos;
  const char* kernel_name = argv[4];
  const Kernel kernel(argv[3], kernel_name);
  const int d = argc > 5 ? std::atoi(argv[5]) : 128, group = argc > 6 ? std::atoi(argv[6]) : 128;
  const char* label = argc > 7 ? argv[7] : "";
  const bool hopper = std::string(kernel_name).find("sm90") != std::string::npos;
  const Attention run{kernel, kind, !hopper, hopper && kind == "dense"};
  if (verb == "check") {
    if (kind == "dense") check_dense(run, d);
    if (kind == "window") check_window(run, d);
    if (kind == "sparse") check_sparse(run, d, group);
    if (kind == "score") check_score(kernel, d, group);
    if (kind == "topk") std::string(kernel_name).find("f32") != std::string::npos ? check_topk<float>(kernel) : check_topk<uint16_t>(kernel);
    std::printf("%s %s group %d: %d checks, %d failures; worst error: output %.2e, lse %.1e, score %.2e\n", failures ? "FAIL" : "ok", kernel_name, group, checks, failures, worst_out, worst_lse, worst_score);
    return failures > 0;
  }
  const char* shares = std::getenv("SHARES");
  for (const auto& size : sizes()) {
    const int n = size.first, h = size.second;
    const int hkv = std::getenv("KV_HEADS") ? std::atoi(std::getenv("KV_HEADS")) : h;
    const Shape s = shape(1, h, hkv, n, d, group);
    const double pairs = static_cast<double>(h) * n * n * d;
    if (kind == "topk") {
      std::vector<uint16_t> host(64 << 20);
      for (size_t i = 0; i < host.size(); i++) {  // as scores are: a bell of some octaves
        const uint32_t x = hash(i);
        host[i] = static_cast<uint16_t>(20000 + (x & 1023) + (x >> 10 & 1023) + (x >> 20 & 1023));
      }
      const bool f32 = std::string(kernel_name).find("f32") != std::string::npos;
      const size_t bytes = f32 ? 4 : 2, total = s.rows() * n;
      Buffer<uint8_t> scores(total * bytes);
      std::vector<float> wide;
      if (f32) for (uint16_t c : host) wide.push_back(std::exp2((c - 31743.f) / 512 + (c & 7) * 1e-5f));
      for (size_t at = 0; at < total; at += host.size())
        OK(cudaMemcpy(scores.p + at * bytes, f32 ? static_cast<void*>(wide.data()) : host.data(), std::min(host.size(), total - at) * bytes, cudaMemcpyHostToDevice));
      Buffer<uint32_t> bits(s.rows() * s.words());
      Buffer<int> keep(std::vector<int>{n / 5});
      const double ms = milliseconds([&] { kernel.run(s.rows(), scores.p, bits.p, keep.p, static_cast<int*>(nullptr), 1ll, static_cast<i64>(h), s.groups(), static_cast<i64>(n), static_cast<i64>(n)); });
      timed(label, kernel_name, s, .8, 0, ms, 0);
      continue;
    }
    const Inputs in(s, 7);
    Buffer<float> lse(s.queries());
    if (kind == "score") {
      std::vector<float> l(s.queries(), std::log(static_cast<float>(n)) + .5f);
      OK(cudaMemcpy(lse.p, l.data(), l.size() * 4, cudaMemcpyHostToDevice));
      Buffer<uint16_t> out(s.rows() * n);
      timed(label, kernel_name, s, 0, 0, milliseconds([&] { run_score(kernel, in, lse.p, out.p, nullptr, n, 0); }), 2 * pairs);
      continue;
    }
    Buffer<bf16> out(s.queries() * d);
    if (kind == "window") {                      // the widths that Streaming has by default
      Inputs narrow(window(s, 128, (n + 9) / 10), 7);
      double kept = 0;
      for (int i = 0; i < n; i++) {
        const int low = std::max(i - 128, 0), high = std::min(i + 128, n - 1), sinks = narrow.s.sinks;
        kept += high - low + 1 + std::min(sinks, low) + std::max(sinks - high - 1, 0);
      }
      timed(label, kernel_name, s, 1 - kept / n / n, 0, milliseconds([&] { run(narrow, out.p, nullptr, nullptr, nullptr, 0); }), 4 * pairs / n / n * kept);
      continue;
    }
    if (kind == "dense") {
      timed(label, kernel_name, s, 0, 0, milliseconds([&] { run(in, out.p, lse.p, nullptr, nullptr, 0); }), 4 * pairs);
      continue;
    }
    for (double sparsity : {.8, .9}) {
      for (const char* p = shares ? shares : "0"; *p;) {
        char* end;
        const double share = std::strtod(p, &end);
        p = *end ? end + 1 : end;
        const int keep = static_cast<int>(n * (1 - sparsity));
        Buffer<uint32_t> bits(s.rows() * s.words());
        fill_bits<<<static_cast<unsigned>(s.rows()), 128>>>(bits.p, s.rows(), static_cast<int>(s.groups()), n, keep, std::max(1, 128 / group), static_cast<float>(share), 3);
        OK(cudaDeviceSynchronize());
        timed(label, kernel_name, s, sparsity, share, milliseconds([&] { run(in, out.p, lse.p, bits.p, nullptr, 0); }), 4 * pairs / n * keep);
      }
    }
  }
}
