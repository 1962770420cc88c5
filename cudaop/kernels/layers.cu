// The layers of a transformer around its matrix products and its attention. All are bound by memory: every thread moves
// up to 8 elements at a time. Inputs are bf16, or float32 with type 1; arithmetic is float32; results are bf16, or float32
// with otype 1.
#include "common.cuh"

constexpr int kThreads = 256;
constexpr int kVector = 8;
constexpr int kElements = kThreads * kVector;  // of a block

// whole says that 8 elements from `at` on can move at once: that many are left, and they are aligned.
DEVICE bool whole(long long at, long long left) { return left >= kVector && at % kVector == 0; }

// load reads the elements of a tensor from `at` on, 8 or as many as are left, and zeros behind them.
DEVICE void load(float (&x)[kVector], const void* tensor, long long at, long long left, long long type) {
  const float* f = static_cast<const float*>(tensor) + at;
  const bf16* h = static_cast<const bf16*>(tensor) + at;
  if (!whole(at, left)) {
#pragma unroll
    for (int i = 0; i < kVector; i++) x[i] = i >= left ? 0.f : type == kOutF32 ? f[i] : __bfloat162float(h[i]);
  } else if (type == kOutF32) {
    const float4 a = reinterpret_cast<const float4*>(f)[0], b = reinterpret_cast<const float4*>(f)[1];
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
  } else {
    const uint4 raw = *reinterpret_cast<const uint4*>(h);
    const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      x[2 * i] = __uint_as_float(word[i] << 16);
      x[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    }
  }
}

// store is the reverse of load.
DEVICE void store(void* tensor, long long at, long long left, const float (&x)[kVector], long long otype) {
  float* f = static_cast<float*>(tensor) + at;
  bf16* h = static_cast<bf16*>(tensor) + at;
  if (!whole(at, left)) {
#pragma unroll
    for (int i = 0; i < kVector; i++) {
      if (i >= left) continue;
      if (otype == kOutF32) f[i] = x[i]; else h[i] = __float2bfloat16(x[i]);
    }
  } else if (otype == kOutF32) {
    reinterpret_cast<float4*>(f)[0] = make_float4(x[0], x[1], x[2], x[3]);
    reinterpret_cast<float4*>(f)[1] = make_float4(x[4], x[5], x[6], x[7]);
  } else {
    *reinterpret_cast<uint4*>(h) = make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
  }
}

DEVICE long long first_element() { return static_cast<long long>(blockIdx.x) * kElements + threadIdx.x * kVector; }

// add: out = a + b, n elements.
LAUNCH(add, kThreads, 0, kElements, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    add(const void* a, const void* b, void* out, long long n, long long type, long long otype) {
  const long long i = first_element();
  if (i >= n) return;
  float x[kVector], y[kVector];
  load(x, a, i, n - i, type);
  load(y, b, i, n - i, type);
#pragma unroll
  for (int j = 0; j < kVector; j++) x[j] += y[j];
  store(out, i, n - i, x, otype);
}

// swiglu: out = gate / (1 + exp(-gate)) * up, n elements.
LAUNCH(swiglu, kThreads, 0, kElements, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    swiglu(const void* gate, const void* up, void* out, long long n, long long type, long long otype) {
  const long long i = first_element();
  if (i >= n) return;
  float x[kVector], y[kVector];
  load(x, gate, i, n - i, type);
  load(y, up, i, n - i, type);
#pragma unroll
  for (int j = 0; j < kVector; j++) x[j] = x[j] / (1.f + exp2_approx(-kLog2e * x[j])) * y[j];
  store(out, i, n - i, x, otype);
}

// rmsnorm: out = x / sqrt(mean(x^2) + eps) * weight for each of the rows of x, of D elements; weight [D] float32. One
// block a row. The order of the sum is fixed by D.
LAUNCH(rmsnorm, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    rmsnorm(const void* x, const float* weight, void* out, long long D, double eps, long long type, long long otype) {
  const long long row = blockIdx.x * D;
  float v[kVector], sum = 0;
  for (long long d = threadIdx.x * kVector; d < D; d += kElements) {
    load(v, x, row + d, D - d, type);
#pragma unroll
    for (int j = 0; j < kVector; j++) sum = fmaf(v[j], v[j], sum);
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  __shared__ float sums[kThreads / 32];
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; w++) sum += sums[w];
  const float r = 1.f / sqrtf(sum / D + static_cast<float>(eps));
  for (long long d = threadIdx.x * kVector; d < D; d += kElements) {
    load(v, x, row + d, D - d, type);
#pragma unroll
    for (int j = 0; j < kVector; j++) v[j] = d + j < D ? v[j] * r * weight[d + j] : 0.f;
    store(out, row + d, D - d, v, otype);
  }
}

// rope: x [B, N, H, D] -> out [B, H, N, D], features d and d + D/2 turned by position * theta^(-2d/D); positions [B, N]
// int32. One block a token, which finds the sines of all heads once, in float64: positions times frequencies lose too
// much in float32. D is even, and D/2 at most kThreads.
LAUNCH(rope, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    rope(const void* x, const int* positions, void* out, long long N, long long H, long long D, double theta, long long type,
         long long otype) {
  __shared__ float sines[kThreads], cosines[kThreads];
  const int half = static_cast<int>(D / 2);
  if (threadIdx.x < half) {
    double s, c;
    sincos(positions[blockIdx.x] * pow(theta, -2.0 * threadIdx.x / D), &s, &c);
    sines[threadIdx.x] = static_cast<float>(s);
    cosines[threadIdx.x] = static_cast<float>(c);
  }
  __syncthreads();
  const long long b = blockIdx.x / N, i = blockIdx.x % N;
  const int pieces = (half + kVector - 1) / kVector;
  for (int e = threadIdx.x; e < H * pieces; e += kThreads) {
    const long long h = e / pieces;
    const int d = e % pieces * kVector, left = half - d;
    float lo[kVector], hi[kVector];
    const long long from = (blockIdx.x * H + h) * D + d, to = ((b * H + h) * N + i) * D + d;
    load(lo, x, from, left, type);
    load(hi, x, from + half, left, type);
#pragma unroll
    for (int j = 0; j < kVector; j++) {
      const float s = j < left ? sines[d + j] : 0.f, c = j < left ? cosines[d + j] : 0.f, a = lo[j], z = hi[j];
      lo[j] = a * c - z * s;
      hi[j] = z * c + a * s;
    }
    store(out, to, left, lo, otype);
    store(out, to + half, left, hi, otype);
  }
}

// swap_axes: x [B, P, Q, D] -> out [B, Q, P, D]. It splits heads (P tokens, Q heads) and merges them (P heads, Q tokens).
// A piece is up to 8 elements of one row of D.
LAUNCH(swap_axes, kThreads, 0, kThreads, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    swap_axes(const void* x, void* out, long long B, long long P, long long Q, long long D, long long type, long long otype) {
  const long long pieces = ceil_div(D, kVector), at = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= B * P * Q * pieces) return;
  const long long d = at % pieces * kVector, row = at / pieces, p = row % P, q = row / P % Q, b = row / (P * Q);
  float v[kVector];
  load(v, x, ((b * P + p) * Q + q) * D + d, D - d, type);
  store(out, row * D + d, D - d, v, otype);
}

// gather: out row i = table row index[i], rows of D elements, and zeros for an index outside [0, rows). Such an index is
// an error unless it is negative and optional is set: worst becomes the largest such i + 1. One block a row.
LAUNCH(gather, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    gather(const void* table, const int* index, void* out, int* worst, long long rows, long long D, long long optional,
           long long type, long long otype) {
  const int from = index[blockIdx.x];
  const bool inside = from >= 0 && from < rows;
  if (!inside && !(optional && from < 0) && threadIdx.x == 0) atomicMax(worst, static_cast<int>(blockIdx.x) + 1);
  for (long long d = threadIdx.x * kVector; d < D; d += kElements) {
    float v[kVector] = {};
    if (inside) load(v, table, from * D + d, D - d, type);
    store(out, blockIdx.x * D + d, D - d, v, otype);
  }
}

// repeat: out = rows copies of row [D] float32, to which a matrix product is then added.
LAUNCH(repeat, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads) repeat(const float* row, void* out, long long D, long long otype) {
  for (long long d = threadIdx.x; d < D; d += kThreads) {
    if (otype == kOutF32)
      static_cast<float*>(out)[blockIdx.x * D + d] = row[d];
    else
      static_cast<bf16*>(out)[blockIdx.x * D + d] = __float2bfloat16(row[d]);
  }
}
