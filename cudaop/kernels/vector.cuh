// What the kernels of the layers around attention share. All of them are bound by memory: a thread moves vectors of 8
// elements and starts several loads before it uses the first. Rows whose length is not a multiple of 8 move element by
// element. Inputs are bf16 or float32, as the kernel's name says; arithmetic is float32; results are bf16, or float32 with
// otype 1.
#pragma once

#include "common.cuh"

constexpr int kThreads = 256;
constexpr int kVector = 8;                       // elements of a vector

template <class T> struct alignas(16) Vector { T x[kVector]; };

// load reads 8 elements; without WHOLE it reads the `left` elements that remain of the row and fills up with zeros.
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

// KERNELS defines NAME_bf16 and NAME_f32, for inputs of these types, from the template BODY<T, WHOLE>. PARAMS are the
// kernel's parameters, the arguments after them are passed to BODY. LEN is the length of a row: no vector crosses its end.
#define KERNEL(NAME, SUFFIX, T_, ROWS, BODY, LEN, PARAMS, ...)                                 \
  LAUNCH(NAME##_##SUFFIX, kThreads, 0, ROWS, 0)                                                \
  extern "C" __global__ void __launch_bounds__(kThreads) NAME##_##SUFFIX PARAMS {              \
    using T = T_;                                                                              \
    if ((LEN) % kVector == 0) BODY<T, true>(__VA_ARGS__);                                      \
    else BODY<T, false>(__VA_ARGS__);                                                          \
  }
#define KERNELS(NAME, ROWS, BODY, LEN, PARAMS, ...)                                                                  \
  KERNEL(NAME, bf16, bf16, ROWS, BODY, LEN, PARAMS, __VA_ARGS__)                                                     \
  KERNEL(NAME, f32, float, ROWS, BODY, LEN, PARAMS, __VA_ARGS__)
#define IN(p) static_cast<const T*>(p)
