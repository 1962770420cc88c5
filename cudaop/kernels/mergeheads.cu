// Heads back to features, and between the BNHD and the BHND layout.
#include "vector.cuh"

constexpr int kMerged = 4;                       // vectors that a thread loads at once

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

// mergeheads: x [B, H, N, D] -> out [B, N, H*D]. ceil(H * ceil(D/8) / (kMerged * kThreads)) blocks a token. With N and H
// exchanged it is its own inverse.
KERNELS(mergeheads, kMerged * kThreads, merge_token, D,
        (const void* x, void* out, long long N, long long H, long long D, long long otype),
        IN(x), out, N, static_cast<int>(H), static_cast<int>(D), otype)
