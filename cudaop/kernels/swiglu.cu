// SwiGLU, the activation between the products of a feed-forward layer.
#include "vector.cuh"

constexpr int kPairs = 2;                        // vectors of each of gate and up that a thread loads at once

template <class T, bool WHOLE> DEVICE void swiglu_row(const T* x, void* out, long long F, long long otype) {
  const unsigned blocks = static_cast<unsigned>(ceil_div(F, kThreads * kVector * kPairs));
  const long long row = blockIdx.x / blocks;
  const int first = blockIdx.x % blocks * (kThreads * kVector * kPairs) + threadIdx.x * kVector;
  Vector<T> gate[kPairs], up[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; i++) {
    const int d = first + i * kThreads * kVector;
    if (d >= F) break;
    gate[i] = load<WHOLE>(x + row * 2 * F + d, F - d);
    up[i] = load<WHOLE>(x + row * 2 * F + F + d, F - d);
  }
#pragma unroll
  for (int i = 0; i < kPairs; i++) {
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

// swiglu: out [rows, F] = gate / (1 + exp(-gate)) * up. A row of x [rows, 2F] is a row of gate followed by one of up.
KERNELS(swiglu, kThreads * kVector * kPairs, swiglu_row, F,
        (const void* x, void* out, long long F, long long otype),
        IN(x), out, F, otype)
