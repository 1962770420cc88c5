// The layers of a transformer around its matrix products and its attention. All are bound by memory: threads move 8
// elements at a time, and load several times before they use the first. Rows that are no multiple of 8 long move one by
// one. Inputs are bf16 or float32, as the kernel's name says; arithmetic is float32; results are bf16, or float32 with
// otype 1.
#include "common.cuh"

constexpr int kThreads = 256;
constexpr int kVector = 8;

template <class T> struct alignas(16) Vector { T x[kVector]; };

// load reads 8 elements, or without WHOLE as many as are left, and zeros behind them.
template <bool WHOLE, class T> DEVICE Vector<T> load(const T* from, long long left) {
  Vector<T> v;
  if constexpr (WHOLE) {
    v = *reinterpret_cast<const Vector<T>*>(from);
  } else {
#pragma unroll
    for (int j = 0; j < kVector; j++) v.x[j] = j < left ? from[j] : static_cast<T>(0.f);
  }
  return v;
}

template <bool WHOLE> DEVICE void store(void* tensor, long long at, long long left, const float (&x)[kVector], long long otype) {
  float* f = static_cast<float*>(tensor) + at;
  bf16* h = static_cast<bf16*>(tensor) + at;
  if constexpr (!WHOLE) {
#pragma unroll
    for (int j = 0; j < kVector; j++) {
      if (j >= left) continue;
      if (otype == kOutF32) f[j] = x[j]; else h[j] = __float2bfloat16(x[j]);
    }
  } else if (otype == kOutF32) {
    reinterpret_cast<float4*>(f)[0] = make_float4(x[0], x[1], x[2], x[3]);
    reinterpret_cast<float4*>(f)[1] = make_float4(x[4], x[5], x[6], x[7]);
  } else {
    *reinterpret_cast<uint4*>(h) = make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
  }
}

// KERNELS defines NAME_bf16 and NAME_f32, for inputs of these types, from the template BODY<T, WHOLE>, which gets the
// arguments behind PARAMS. LEN is the length of the rows that vectors must not cross.
#define KERNEL(NAME, SUFFIX, T_, ROWS, BODY, LEN, PARAMS, ...)                                 \
  LAUNCH(NAME##_##SUFFIX, kThreads, 0, ROWS, 0)                                                \
  extern "C" __global__ void __launch_bounds__(kThreads) NAME##_##SUFFIX PARAMS {              \
    using T = T_;                                                                              \
    if ((LEN) % kVector == 0) BODY<T, true>(__VA_ARGS__);                                      \
    else BODY<T, false>(__VA_ARGS__);                                                          \
  }
#define KERNELS(NAME, ROWS, BODY, LEN, PARAMS, ...)            \
  KERNEL(NAME, bf16, bf16, ROWS, BODY, LEN, PARAMS, __VA_ARGS__) \
  KERNEL(NAME, f32, float, ROWS, BODY, LEN, PARAMS, __VA_ARGS__)
#define IN(p) static_cast<const T*>(p)

template <class T, bool WHOLE> DEVICE void add_vectors(const T* a, const T* b, void* out, long long n, long long otype) {
  const long long i = (static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
  if (i >= n) return;
  const Vector<T> x = load<WHOLE>(a + i, n - i), y = load<WHOLE>(b + i, n - i);
  float sum[kVector];
#pragma unroll
  for (int j = 0; j < kVector; j++) sum[j] = static_cast<float>(x.x[j]) + static_cast<float>(y.x[j]);
  store<WHOLE>(out, i, n - i, sum, otype);
}

// add: out = a + b, n elements. out may be a or b.
KERNELS(add, kThreads * kVector, add_vectors, n,
        (const void* a, const void* b, void* out, long long n, long long otype),
        IN(a), IN(b), out, n, otype)

constexpr int kGated = 2;  // vectors of each of gate and up that a thread loads at once

template <class T, bool WHOLE> DEVICE void swiglu_row(const T* x, void* out, long long F, long long otype) {
  const unsigned blocks = static_cast<unsigned>(ceil_div(F, kThreads * kVector * kGated));
  const long long row = blockIdx.x / blocks;
  const int first = blockIdx.x % blocks * (kThreads * kVector * kGated) + threadIdx.x * kVector;
  Vector<T> gate[kGated], up[kGated];
#pragma unroll
  for (int i = 0; i < kGated; i++) {
    const int d = first + i * kThreads * kVector;
    if (d >= F) break;
    gate[i] = load<WHOLE>(x + row * 2 * F + d, F - d);
    up[i] = load<WHOLE>(x + row * 2 * F + F + d, F - d);
  }
#pragma unroll
  for (int i = 0; i < kGated; i++) {
    const int d = first + i * kThreads * kVector;
    if (d >= F) break;
    float y[kVector];
#pragma unroll
    for (int j = 0; j < kVector; j++) {
      const float g = gate[i].x[j];
      y[j] = __fdividef(g, 1.f + exp2_approx(-kLog2e * g)) * static_cast<float>(up[i].x[j]);
    }
    store<WHOLE>(out, row * F + d, F - d, y, otype);
  }
}

// swiglu: x [rows, 2F], gate beside up -> out [rows, F] = gate / (1 + exp(-gate)) * up.
KERNELS(swiglu, kThreads * kVector * kGated, swiglu_row, F,
        (const void* x, void* out, long long F, long long otype),
        IN(x), out, F, otype)

constexpr int kKept = 2;  // vectors of a row that a thread keeps; it reads what a longer row has once more, from a cache

template <class T, bool WHOLE> DEVICE void rmsnorm_row(const T* x, const float* weight, void* out, long long D, float eps, long long otype) {
  const long long row = blockIdx.x * D;
  const int first = threadIdx.x * kVector;
  constexpr int kStep = kThreads * kVector;
  Vector<T> kept[kKept];
#pragma unroll
  for (int i = 0; i < kKept; i++) {
    if (first + i * kStep < D) kept[i] = load<WHOLE>(x + row + first + i * kStep, D - first - i * kStep);
  }
  float sum = 0;
  const auto square = [&](const Vector<T>& v) {
#pragma unroll
    for (int j = 0; j < kVector; j++) sum = fmaf(v.x[j], v.x[j], sum);
  };
#pragma unroll
  for (int i = 0; i < kKept; i++) {
    if (first + i * kStep < D) square(kept[i]);
  }
  for (long long d = first + kKept * kStep; d < D; d += kStep) square(load<WHOLE>(x + row + d, D - d));
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  __shared__ float sums[kThreads / 32];
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; w++) sum += sums[w];
  const float r = 1.f / sqrtf(sum / D + eps);
  const auto weigh = [&](const Vector<T>& v, long long d) {
    const Vector<float> w = load<WHOLE>(weight + d, D - d);
    float y[kVector];
#pragma unroll
    for (int j = 0; j < kVector; j++) y[j] = static_cast<float>(v.x[j]) * r * w.x[j];
    store<WHOLE>(out, row + d, D - d, y, otype);
  };
#pragma unroll
  for (int i = 0; i < kKept; i++) {
    if (first + i * kStep < D) weigh(kept[i], first + i * kStep);
  }
  for (long long d = first + kKept * kStep; d < D; d += kStep) weigh(load<WHOLE>(x + row + d, D - d), d);
}

// rmsnorm: out = x / sqrt(mean(x^2) + eps) * weight for each of the rows of x, of D elements; weight [D] float32. One
// block a row. The order of the sum is fixed by D.
KERNELS(rmsnorm, 1, rmsnorm_row, D,
        (const void* x, const float* weight, void* out, long long D, double eps, long long otype),
        IN(x), weight, out, D, static_cast<float>(eps), otype)

constexpr int kTurned = 2;  // pairs of vectors that a thread loads at once

template <class T, bool WHOLE>
DEVICE void heads_of_tokens(const T* x, const int* positions, const double* frequencies, void* out, long long tokens, long long N,
                            int H, int D, long long width, long long otype) {
  __shared__ float sines[kThreads], cosines[kThreads];
  const int half = D / 2, together = kThreads / half;  // tokens of a block
  const long long first = static_cast<long long>(blockIdx.x) * together;
  const int count = static_cast<int>(min(static_cast<long long>(together), tokens - first));
  if (frequencies != nullptr) {
    if (threadIdx.x < count * half) {
      // Whole turns go in float64, where there are few instructions a clock; what float32 then leaves of the angle is so
      // small that it is its own sine.
      const double angle = positions[first + threadIdx.x / half] * frequencies[threadIdx.x % half], rest = angle - 2 * rint(angle / 2);
      const float nearby = static_cast<float>(rest), left = static_cast<float>(rest - nearby) * CUDART_PI_F;
      float s, c;
      sincospif(nearby, &s, &c);
      sines[threadIdx.x] = fmaf(c, left, s);
      cosines[threadIdx.x] = fmaf(-s, left, c);
    }
    __syncthreads();
  }
  const int pieces = (half + kVector - 1) / kVector, total = count * H * pieces;
  for (int start = threadIdx.x; start < total; start += kTurned * kThreads) {
    Vector<T> lows[kTurned], highs[kTurned];
#pragma unroll
    for (int i = 0; i < kTurned; i++) {
      const int e = start + i * kThreads;
      if (e >= total) break;
      const int d = e % pieces * kVector, h = e / pieces % H, t = e / pieces / H;
      const T* from = x + (first + t) * width + h * D + d;
      lows[i] = load<WHOLE>(from, half - d);
      highs[i] = load<WHOLE>(from + half, half - d);
    }
#pragma unroll
    for (int i = 0; i < kTurned; i++) {
      const int e = start + i * kThreads;
      if (e >= total) break;
      const int d = e % pieces * kVector, h = e / pieces % H, t = e / pieces / H;
      float lo[kVector], hi[kVector];
#pragma unroll
      for (int j = 0; j < kVector; j++) {
        const float a = lows[i].x[j], z = highs[i].x[j];
        const bool turn = frequencies != nullptr && (WHOLE || d + j < half);
        const float s = turn ? sines[t * half + d + j] : 0.f, c = turn ? cosines[t * half + d + j] : 1.f;
        lo[j] = a * c - z * s;
        hi[j] = z * c + a * s;
      }
      const long long token = first + t, b = token / N;
      const long long to = ((b * H + h) * N + token - b * N) * D + d;
      store<WHOLE>(out, to, half - d, lo, otype);
      store<WHOLE>(out, to + half, half - d, hi, otype);
    }
  }
}

// take_heads: x [B*N, width], of which the first H*D elements of a row are heads -> out [B, H, N, D]. With frequencies
// [D/2] float64, features d and d + D/2 of a head are turned by position * frequency half-turns; positions [B*N] int32.
// One block for kThreads / (D/2) tokens, which finds the sines of all their heads once. D is even, and D/2 at most
// kThreads.
KERNELS(take_heads, 1, heads_of_tokens, D / 2,
        (const void* x, const int* positions, const double* frequencies, void* out, long long tokens, long long N, long long H,
         long long D, long long width, long long otype),
        IN(x), positions, frequencies, out, tokens, N, static_cast<int>(H), static_cast<int>(D), width, otype)

constexpr int kMerged = 4;  // vectors that a thread loads at once

template <class T, bool WHOLE> DEVICE void merge_token(const T* x, void* out, long long N, int H, int D, long long otype) {
  const int pieces = (D + kVector - 1) / kVector, total = H * pieces;
  const unsigned blocks = static_cast<unsigned>(ceil_div(total, kMerged * kThreads));
  const long long token = blockIdx.x / blocks, b = token / N, i = token % N;
  const int first = blockIdx.x % blocks * (kMerged * kThreads) + threadIdx.x;
  Vector<T> v[kMerged];
#pragma unroll
  for (int k = 0; k < kMerged; k++) {
    const int e = first + k * kThreads;
    if (e >= total) break;
    const int d = e % pieces * kVector, h = e / pieces;
    v[k] = load<WHOLE>(x + ((b * H + h) * N + i) * D + d, D - d);
  }
#pragma unroll
  for (int k = 0; k < kMerged; k++) {
    const int e = first + k * kThreads;
    if (e >= total) break;
    const int d = e % pieces * kVector, h = e / pieces;
    float y[kVector];
#pragma unroll
    for (int j = 0; j < kVector; j++) y[j] = v[k].x[j];
    store<WHOLE>(out, (token * H + h) * D + d, D - d, y, otype);
  }
}

// merge_heads: x [B, H, N, D] -> out [B, N, H*D]. ceil(H * ceil(D/8) / (kMerged * kThreads)) blocks a token. With N and H
// exchanged it is its own inverse.
KERNELS(merge_heads, kMerged * kThreads, merge_token, D,
        (const void* x, void* out, long long N, long long H, long long D, long long otype),
        IN(x), out, N, static_cast<int>(H), static_cast<int>(D), otype)

template <class T, bool WHOLE> 
DEVICE void gather_row(const T* table, long long from, void* out, int* worst, long long rows, long long D, long long optional, long long otype) {
  const bool inside = from >= 0 && from < rows;
  if (!inside && !(optional && from < 0) && threadIdx.x == 0) atomicMax(worst, static_cast<int>(blockIdx.x) + 1);
  for (long long d = threadIdx.x * kVector; d < D; d += kThreads * kVector) {
    float y[kVector] = {};
    if (inside) {
      const Vector<T> v = load<WHOLE>(table + from * D + d, D - d);
#pragma unroll
      for (int j = 0; j < kVector; j++) y[j] = v.x[j];
    }
    store<WHOLE>(out, blockIdx.x * D + d, D - d, y, otype);
  }
}

// gather: out row i = table row index[i], rows of D elements, and zeros for an index outside [0, rows). Such an index is
// an error unless it is negative and optional is set: worst becomes the largest such i + 1. One block a row.
KERNELS(gather, 1, gather_row, D,
        (const void* table, const int* index, void* out, int* worst, long long rows, long long D, long long optional, long long otype),
        IN(table), index[blockIdx.x], out, worst, rows, D, optional, otype)
