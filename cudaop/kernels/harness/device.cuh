// Device memory, random inputs and modules of the harness.
#pragma once

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

static cudaStream_t launch_stream = nullptr;     // of all kernels of modules

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
    OK(cuLaunchKernel(f, static_cast<unsigned>(grid), 1, 1, static_cast<unsigned>(launch[0]), 1, 1, static_cast<unsigned>(launch[1]), launch_stream, pointers, nullptr));
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
