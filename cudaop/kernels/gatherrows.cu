// Rows of a table by index: embeddings, and selected rows of a tensor.
#include "vector.cuh"

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

// gatherrows: out row i = table row index[i], rows of D elements, and zeros for an index outside [0, rows). Such an
// index is an error unless it is negative and optional is set; worst becomes the largest i + 1 of an error. One block a row.
KERNELS(gatherrows, 1, gather_row, D,
        (const void* table, const int* index, void* out, int* worst, long long rows, long long D, long long optional, long long otype),
        IN(table), index[blockIdx.x], out, worst, rows, D, optional, otype)
