// What all kernels share: the calling convention, and the instructions of sm_80.
#pragma once

#include <cuda_bf16.h>
#include <math_constants.h>
#include <stdint.h>

#define DEVICE __device__ __forceinline__

using bf16 = __nv_bfloat16;

// Exports how kernel NAME is launched; README.md explains the four numbers.
#define LAUNCH(NAME, THREADS, SHARED, ROWS, PER_SM) \
  extern "C" __device__ long long NAME##_launch[4]; \
  __device__ long long NAME##_launch[4] = {THREADS, SHARED, ROWS, PER_SM};

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// kLowest is the initial row maximum. It is finite while masked scores are -inf: a tile without a key for a query then adds
// exp2(-inf - finite) = 0 and not NaN.
constexpr float kLowest = -1e30f;

enum OutputType { kOutBf16 = 0, kOutF32 = 1 };
enum ScoreType { kScoreLog16 = 0, kScoreF32 = 1 };

DEVICE uint32_t smem_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

DEVICE long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }

DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// pack rounds two floats to bf16; lo becomes the lower half.
DEVICE uint32_t pack(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

// copy16 starts a copy of 16 bytes to shared memory, or of 16 zeros unless live: a size of 0 instead of a branch keeps the
// lanes of a warp together.
DEVICE void copy16(uint32_t to, const void* from, bool live) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(live ? 16 : 0) : "memory");
}

DEVICE void copy16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// copies_commit makes a group of the copies started so far; copies_wait waits until all but the last PENDING groups are
// complete.
DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

DEVICE uint32_t load_shared(uint32_t address) {
  uint32_t x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}

DEVICE void load_shared4(uint32_t address, float& a, float& b, float& c, float& d) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "r"(address) : "memory");
}

DEVICE void store_shared(uint32_t address, uint32_t x) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory"); }

DEVICE void ldmatrix(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

DEVICE void ldmatrix_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

// mma adds the product of 16 rows of a and 8 columns of b, over 16 values of the inner dimension, to d.
DEVICE void mma(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// quad_max and quad_sum combine the four lanes that share a row of an accumulator.
DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// swizzled is the offset of 16-byte chunk c of row r in a tile of rows of 128 bytes: Hopper's 128-byte swizzle, which keeps
// ldmatrix free of bank conflicts on every GPU. A head of 128 columns is two such tiles, one after the other.
DEVICE uint32_t swizzled(int r, int c) { return r * 128 + ((c ^ (r & 7)) << 4); }

// Named barriers; number 0 is __syncthreads.
DEVICE void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEVICE void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// to_log16 encodes a score, see README.md: 512 steps an octave, all codes below 2^15 and finite as float16.
DEVICE uint16_t to_log16(float s) {
  constexpr float kZero = 12582912.f;            // 1.5·2^23: a sum with it is rounded to an integer, in its lower bits
  float log2;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2) : "f"(s));
  const float code = fmaf(log2, 512.f, kZero + 31743.f);
  return static_cast<uint16_t>(__float_as_uint(fminf(fmaxf(code, kZero), kZero + 31743.f)));
}
