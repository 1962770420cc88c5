// Rotary position embedding of heads, and the split of features into heads.
#include "vector.cuh"

constexpr int kPairs = 2;                        // pairs of vectors that a thread loads at once

template <class T, bool WHOLE>
DEVICE void rotate_heads(const T* x, const int* positions, const double* frequencies, void* out, long long tokens, long long N,
                            int H, int D, long long width, long long otype, int most, long long pitch, const int* at) {
  __shared__ float sines[kThreads], cosines[kThreads];
  const int half = D / 2, per_block = min(kThreads / half, most);  // tokens of a block
  const long long first = static_cast<long long>(blockIdx.x) * per_block, row = at != nullptr ? __ldg(at) : 0;
  const int count = static_cast<int>(min(static_cast<long long>(per_block), tokens - first));
  if (frequencies != nullptr) {
    if (threadIdx.x < count * half) {
      // Whole turns are removed in float64, of which a GPU does few a clock. What rounding to float32 then leaves of the
      // angle is so small that it is its own sine.
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
  for (int start = threadIdx.x; start < total; start += kPairs * kThreads) {
    Vector<T> lows[kPairs], highs[kPairs];
#pragma unroll
    for (int i = 0; i < kPairs; i++) {
      const int e = start + i * kThreads;
      if (e >= total) break;
      const int d = e % pieces * kVector, h = e / pieces % H, t = e / pieces / H;
      const T* from = x + (first + t) * width + h * D + d;
      lows[i] = load<WHOLE>(from, half - d);
      highs[i] = load<WHOLE>(from + half, half - d);
    }
#pragma unroll
    for (int i = 0; i < kPairs; i++) {
      const int e = start + i * kThreads;
      if (e >= total) break;
      const int d = e % pieces * kVector, h = e / pieces % H, t = e / pieces / H;
      float lo[kVector], hi[kVector];
#pragma unroll
      for (int j = 0; j < kVector; j++) {
        const float a = lows[i].x[j], z = highs[i].x[j];
        const bool rotate = frequencies != nullptr && (WHOLE || d + j < half);
        const float s = rotate ? sines[t * half + d + j] : 0.f, c = rotate ? cosines[t * half + d + j] : 1.f;
        lo[j] = a * c - z * s;
        hi[j] = z * c + a * s;
      }
      const long long token = first + t, b = token / N;
      const long long to = ((b * H + h) * pitch + row + token - b * N) * D + d;
      store<WHOLE>(out, to, half - d, lo, otype);
      store<WHOLE>(out, to + half, half - d, hi, otype);
    }
  }
}

// rope: out [B, H, pitch, D] has from row at[0] on, or 0 without `at`, the first H*D elements of the rows of x [B*N, width],
// split into heads. With frequencies
// [D/2] float64, features d and d + D/2 of a head are rotated by position * frequency half-turns; positions [B*N] int32.
// Without frequencies, a null pointer, heads are split only. A block serves `most` tokens, at most kThreads / (D/2), and
// computes the sines of all their heads once. D is even, and D/2 at most kThreads.
KERNELS(rope, 1, rotate_heads, D / 2,
        (const void* x, const int* positions, const double* frequencies, void* out, long long tokens, long long N, long long H,
         long long D, long long width, long long otype, long long most, long long pitch, const int* at),
        IN(x), positions, frequencies, out, tokens, N, static_cast<int>(H), static_cast<int>(D), width, otype, static_cast<int>(most), pitch, at)
