// The sum of two tensors, a residual connection.
#include "vector.cuh"

template <class T, bool WHOLE> DEVICE void add_vectors(const T* a, const T* b, void* out, long long n, long long otype) {
  const long long i = (static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
  if (i >= n) return;
  const Vector<T> x = load<WHOLE>(a + i, n - i), y = load<WHOLE>(b + i, n - i);
  float sum[kVector];
#pragma unroll
  for (int j = 0; j < kVector; j++) sum[j] = static_cast<float>(x.x[j]) + static_cast<float>(y.x[j]);
  store<WHOLE>(out, i, n - i, sum, otype);
}

// add: out = a + b, n elements. out may be a or b. Work items of kThreads * kVector elements.
KERNELS(add, kThreads * kVector, add_vectors, n,
        (const void* a, const void* b, void* out, long long n, long long otype),
        IN(a), IN(b), out, n, otype)
