// Root-mean-square normalisation.
#include "dependent.cuh"
#include "vector.cuh"

constexpr int kKept = 2;                         // vectors of a row that a thread keeps; it reads the rest of a longer row twice

template <class T, bool WHOLE> DEVICE void rmsnorm_row(const T* x, const float* weight, void* out, long long D, float eps, long long otype) {
  const long long row = blockIdx.x * D;
  const int first = threadIdx.x * kVector;
  constexpr int kStep = kThreads * kVector;
  prerequisites_wait();
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
  const auto scale = [&](const Vector<T>& v, long long d) {
    const Vector<float> w = load<WHOLE>(weight + d, D - d);
    float y[kVector];
#pragma unroll
    for (int j = 0; j < kVector; j++) y[j] = static_cast<float>(v.x[j]) * r * w.x[j];
    store<WHOLE>(out, row + d, D - d, y, otype);
  };
#pragma unroll
  for (int i = 0; i < kKept; i++) {
    if (first + i * kStep < D) scale(kept[i], first + i * kStep);
  }
  for (long long d = first + kKept * kStep; d < D; d += kStep) scale(load<WHOLE>(x + row + d, D - d), d);
}

DEPENDENT(rmsnorm_bf16)
DEPENDENT(rmsnorm_f32)

// rmsnorm: out = x / sqrt(mean(x^2) + eps) * weight for each row of D elements of x; weight [D] float32. One block a row.
// The order of the sum depends on D alone.
KERNELS(rmsnorm, 1, rmsnorm_row, D,
        (const void* x, const float* weight, void* out, long long D, double eps, long long otype),
        IN(x), weight, out, D, static_cast<float>(eps), otype)
