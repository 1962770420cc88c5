// Conversions between float32 and bf16, rounding to nearest even. Memory-bound: 6 bytes for each element.
#include "common.cuh"

constexpr int kElements = 8 * 256;               // of a block

template <class From, class To>
DEVICE void convert(const From* in, To* out, long long n) {
  const long long first = static_cast<long long>(blockIdx.x) * kElements + threadIdx.x * 8;
  struct alignas(8 * sizeof(From)) In { From x[8]; };
  struct alignas(8 * sizeof(To)) Out { To x[8]; };
  const auto one = [](From x) { return static_cast<To>(static_cast<float>(x)); };
  if (first + 8 <= n) {
    const In i = *reinterpret_cast<const In*>(in + first);
    Out o;
#pragma unroll
    for (int j = 0; j < 8; j++) o.x[j] = one(i.x[j]);
    *reinterpret_cast<Out*>(out + first) = o;
  } else {
    for (long long j = first; j < n; j++) out[j] = one(in[j]);
  }
}

LAUNCH(f32_to_bf16, 256, 0, kElements, 0)
extern "C" __global__ void __launch_bounds__(256) f32_to_bf16(const float* in, bf16* out, long long n) { convert(in, out, n); }

LAUNCH(bf16_to_f32, 256, 0, kElements, 0)
extern "C" __global__ void __launch_bounds__(256) bf16_to_f32(const bf16* in, float* out, long long n) { convert(in, out, n); }
