// The layers of a transformer around its matrix products and its attention. All are bound by memory: every thread moves
// 8 elements at a time, and feature counts are multiples of 8. Inputs are bf16, arithmetic is float32; results are bf16,
// or float32 with otype 1.
#include "common.cuh"

constexpr int kThreads = 256;
constexpr int kVector = 8;
constexpr int kElements = kThreads * kVector;  // of a block

DEVICE void load(float (&x)[kVector], const bf16* from) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    x[2 * i] = __uint_as_float(word[i] << 16);
    x[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
  }
}

DEVICE void store(void* out, long long at, const float (&x)[kVector], long long otype) {
  if (otype == kOutF32) {
    float4* to = reinterpret_cast<float4*>(static_cast<float*>(out) + at);
    to[0] = make_float4(x[0], x[1], x[2], x[3]);
    to[1] = make_float4(x[4], x[5], x[6], x[7]);
  } else {
    *reinterpret_cast<uint4*>(static_cast<bf16*>(out) + at) =
        make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
  }
}

DEVICE long long first_element() { return static_cast<long long>(blockIdx.x) * kElements + threadIdx.x * kVector; }

// add: out = a + b, n elements.
LAUNCH(add, kThreads, 0, kElements, 0)
extern "C" __global__ void __launch_bounds__(kThreads) add(const bf16* a, const bf16* b, void* out, long long n, long long otype) {
  const long long i = first_element();
  if (i >= n) return;
  float x[kVector], y[kVector];
  load(x, a + i);
  load(y, b + i);
#pragma unroll
  for (int j = 0; j < kVector; j++) x[j] += y[j];
  store(out, i, x, otype);
}

// swiglu: out = gate / (1 + exp(-gate)) * up, n elements.
LAUNCH(swiglu, kThreads, 0, kElements, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    swiglu(const bf16* gate, const bf16* up, void* out, long long n, long long otype) {
  const long long i = first_element();
  if (i >= n) return;
  float x[kVector], y[kVector];
  load(x, gate + i);
  load(y, up + i);
#pragma unroll
  for (int j = 0; j < kVector; j++) x[j] = x[j] / (1.f + exp2_approx(-kLog2e * x[j])) * y[j];
  store(out, i, x, otype);
}

// rmsnorm: out = x / sqrt(mean(x^2) + eps) * weight for each of the rows of x, of D elements; weight [D] float32. One
// block a row. The order of the sum is fixed by D.
LAUNCH(rmsnorm, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    rmsnorm(const bf16* x, const float* weight, void* out, long long D, double eps, long long otype) {
  const long long row = blockIdx.x * D;
  float v[kVector], sum = 0;
  for (long long d = threadIdx.x * kVector; d < D; d += kElements) {
    load(v, x + row + d);
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
    load(v, x + row + d);
#pragma unroll
    for (int j = 0; j < kVector; j++) v[j] = v[j] * r * weight[d + j];
    store(out, row + d, v, otype);
  }
}

// rope: x [B, N, H, D] -> out [B, H, N, D], features d and d + D/2 turned by position * theta^(-2d/D); positions [B, N]
// int32. One block a token, which finds the sines of all heads once, in float64: positions times frequencies lose too
// much in float32. D/2 is a multiple of 8, and at most kThreads.
LAUNCH(rope, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    rope(const bf16* x, const int* positions, void* out, long long N, long long H, long long D, double theta, long long otype) {
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
  for (long long e = threadIdx.x * kVector; e < H * half; e += kElements) {
    const long long h = e / half;
    const int d = static_cast<int>(e % half);
    float lo[kVector], hi[kVector];
    const bf16* from = x + (blockIdx.x * H + h) * D + d;
    load(lo, from);
    load(hi, from + half);
#pragma unroll
    for (int j = 0; j < kVector; j++) {
      const float s = sines[d + j], c = cosines[d + j], a = lo[j], z = hi[j];
      lo[j] = a * c - z * s;
      hi[j] = z * c + a * s;
    }
    const long long to = ((b * H + h) * N + i) * D + d;
    store(out, to, lo, otype);
    store(out, to + half, hi, otype);
  }
}

// swap_axes: x [B, P, Q, D] -> out [B, Q, P, D]. It splits heads (P tokens, Q heads) and merges them (P heads, Q tokens).
LAUNCH(swap_axes, kThreads, 0, kElements, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    swap_axes(const bf16* x, void* out, long long B, long long P, long long Q, long long D, long long otype) {
  const long long at = first_element();
  if (at >= B * P * Q * D) return;
  const long long d = at % D, p = at / D % P, q = at / (D * P) % Q, b = at / (D * P * Q);
  float v[kVector];
  load(v, x + ((b * P + p) * Q + q) * D + d);
  store(out, at, v, otype);
}

// gather: out row i = table row index[i], rows of D elements, and zeros for an index outside [0, rows). Such an index is
// an error unless it is negative and optional is set: worst becomes the largest such i + 1. One block a row.
LAUNCH(gather, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    gather(const bf16* table, const int* index, void* out, int* worst, long long rows, long long D, long long optional, long long otype) {
  const int from = index[blockIdx.x];
  const bool inside = from >= 0 && from < rows;
  if (!inside && !(optional && from < 0) && threadIdx.x == 0) atomicMax(worst, static_cast<int>(blockIdx.x) + 1);
  for (long long d = threadIdx.x * kVector; d < D; d += kElements) {
    float v[kVector] = {};
    if (inside) load(v, table + from * D + d);
    store(out, blockIdx.x * D + d, v, otype);
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
