// Greedy sampling: the token that a row of logits proposes, and its confidence. The rule, the order of sums and the
// arithmetic are those of the samplers on the CPU (Rule, its sums in lanes, exp and log), so that results have the same
// bits. __dmul_rn, __dadd_rn and their like are never fused.
#include "common.cuh"

constexpr int kThreads = 1024;                   // one for each lane of a sum
constexpr int kWarps = kThreads / 32;
constexpr int kNone = 0x7fffffff;

enum Confidence { kNothing, kProbability, kMargin, kNegativeEntropy };
enum DType { kFloat32, kBFloat16, kFloat64 };

struct Choice {
  double confidence;
  int token, invalid;                            // -1 for none; invalid is the first token whose logit is NaN or +Inf
  float logit;                                   // of the invalid token
  int unused;
};

constexpr double kLn2Hi = 0x1.62e42feep-1, kLn2Lo = 0x1.a39ef35793c76p-33;

DEVICE double mul(double a, double b) { return __dmul_rn(a, b); }
DEVICE double add(double a, double b) { return __dadd_rn(a, b); }

// exp_negative is exp(x) for x <= 0.
DEVICE double exp_negative(double x) {
  if (x < -708) return 0;
  constexpr double kShift = 0x1.8p52;
  const double shifted = add(mul(x, 0x1.71547652b82fep0), kShift), k = add(shifted, -kShift);
  const double r = add(add(x, -mul(k, kLn2Hi)), -mul(k, kLn2Lo)), r2 = mul(r, r), r4 = mul(r2, r2);
  const double y0 = add(add(1, r), mul(r2, add(1.0 / 2, mul(r, 1.0 / 6))));
  const double y4 = add(add(1.0 / 24, mul(r, 1.0 / 120)), mul(r2, add(1.0 / 720, mul(r, 1.0 / 5040))));
  const double y8 = add(add(1.0 / 40320, mul(r, 1.0 / 362880)), mul(r2, add(1.0 / 3628800, mul(r, 1.0 / 39916800))));
  const double y12 = add(1.0 / 479001600, mul(r, 1.0 / 6227020800.0));
  const double y = add(y0, mul(r4, add(y4, mul(r4, add(y8, mul(r4, y12))))));
  return mul(y, __longlong_as_double((__double_as_longlong(shifted) + 1023) << 52));
}

// log_normal is ln(x) for x neither 0 nor infinite nor subnormal.
DEVICE double log_normal(double x) {
  const long long bits = __double_as_longlong(x), exponent = (bits - 0x3fe6a09e667f3bcdll) & ~((1ll << 52) - 1);
  const double k = static_cast<double>(exponent >> 52), m = __longlong_as_double(bits - exponent);
  const double s = __ddiv_rn(add(m, -1), add(m, 1)), z = mul(s, s);
  double y = 1.0 / 21;
#pragma unroll
  for (int n = 19; n >= 3; n -= 2) y = add(mul(y, z), 1.0 / n);
  y = mul(y, z);
  return add(mul(k, kLn2Hi), add(mul(2, s), add(mul(mul(2, s), y), mul(k, kLn2Lo))));
}

DEVICE double rounded(double x, long long dtype) {
  if (dtype == kFloat64) return x;
  const float f = __double2float_rn(x);
  if (dtype == kFloat32) return f;
  const uint32_t bits = __float_as_uint(f);
  return __uint_as_float((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

// Logits is a row of the model's logits c, or with u of guided ones.
struct Logits {
  const float *c, *u;                            // u may be null
  float guidance;
  DEVICE float operator[](long long v) const { return u ? __fadd_rn(u[v], __fmul_rn(guidance, __fsub_rn(c[v], u[v]))) : c[v]; }
};

// Best is the largest logit, of equal ones that of the lowest token.
struct Best {
  float logit;
  int token;
  DEVICE void take(float l, int v) {
    if (l > logit || (l == logit && v < token)) logit = l, token = v;
  }
};

// block_sum adds one x of each thread: the upper half of the threads to the lower half until one is left. All threads get
// the sum. part has kThreads elements.
DEVICE double block_sum(double x, double* part) {
  __syncthreads();
  part[threadIdx.x] = x;
#pragma unroll
  for (int n = kThreads / 2; n >= 32; n /= 2) {
    __syncthreads();
    if (threadIdx.x < n) part[threadIdx.x] = add(part[threadIdx.x], part[threadIdx.x + n]);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    x = part[threadIdx.x];
#pragma unroll
    for (int n = 16; n > 0; n /= 2) x = add(x, __shfl_down_sync(~0u, x, n));
    if (threadIdx.x == 0) part[0] = x;
  }
  __syncthreads();
  return part[0];
}

// confidence applies a rule to rows of V logits: out[i] is the choice for row i of logits, guided by row i of unconditional
// unless that is null. The token `suppress` is not proposed, `ban` has a probability of 0 too, and defer0 and defer1 have a
// confidence of 0 but may be proposed; -1 is no token. kind is a Confidence, of probabilities rounded to dtype. One block a
// row: it reads the row once for the token, once for the sum of the softmax and once more for the entropy.
LAUNCH(confidence, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    confidence(const float* logits, const float* unconditional, Choice* out, long long V, double guidance, long long suppress,
               long long ban, long long defer0, long long defer1, long long kind, long long dtype) {
  __shared__ double part[kThreads];
  __shared__ Best bests[kWarps];
  __shared__ float tops[kWarps];
  __shared__ int invalids[kWarps];
  const long long row = blockIdx.x * V;
  const Logits l = {logits + row, unconditional ? unconditional + row : nullptr, static_cast<float>(guidance)};
  // The logits of the softmax.
  const auto soft = [&](long long v, float x) { return v == ban || v == defer0 || v == defer1 ? -CUDART_INF_F : x; };

  Best best = {-CUDART_INF_F, kNone};
  float top = -CUDART_INF_F;
  int invalid = kNone;
#pragma unroll 4
  for (long long v = threadIdx.x; v < V; v += kThreads) {
    const float x = l[v];
    if (!(x <= 3.402823466e38f)) invalid = min(invalid, static_cast<int>(v));
    if (v != suppress && v != ban && x > best.logit) best = {x, static_cast<int>(v)};
    top = fmaxf(top, soft(v, x));
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const float x = __shfl_xor_sync(~0u, best.logit, lanes);
    best.take(x, __shfl_xor_sync(~0u, best.token, lanes));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, lanes));
    invalid = min(invalid, __shfl_xor_sync(~0u, invalid, lanes));
  }
  if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best, tops[threadIdx.x / 32] = top, invalids[threadIdx.x / 32] = invalid;
  __syncthreads();
  for (int w = 0; w < kWarps; w++) {
    best.take(bests[w].logit, bests[w].token);
    top = fmaxf(top, tops[w]);
    invalid = min(invalid, invalids[w]);
  }

  Choice c = {0, best.token == kNone ? -1 : best.token, -1, 0, 0};
  if (invalid != kNone) c.token = -1, c.invalid = invalid, c.logit = l[invalid];
  // If top is -inf, no token is left for the softmax and every probability is 0.
  if (c.token >= 0 && kind != kNothing && top > -CUDART_INF_F) {
    const auto weight = [&](long long v) { return exp_negative(add(soft(v, l[v]), -static_cast<double>(top))); };
    double sum = 0, second = 0;
#pragma unroll 4
    for (long long v = threadIdx.x; v < V; v += kThreads) {
      const double e = weight(v);
      sum = add(sum, e);
      if (v != c.token) second = fmax(second, e);
    }
    const double total = block_sum(sum, part);
    const double p = rounded(__ddiv_rn(weight(c.token), total), dtype);
    if (kind == kProbability) {
      c.confidence = p;
    } else if (kind == kMargin) {
      __syncthreads();
      part[threadIdx.x] = second;
      __syncthreads();
      for (int t = threadIdx.x % 32; t < kThreads; t += 32) second = fmax(second, part[t]);
#pragma unroll
      for (int lanes = 16; lanes > 0; lanes /= 2) second = fmax(second, __shfl_xor_sync(~0u, second, lanes));
      c.confidence = rounded(add(p, -rounded(__ddiv_rn(second, total), dtype)), dtype);
    } else {
      sum = 0;
      for (long long v = threadIdx.x; v < V; v += kThreads) {
        const double x = rounded(__ddiv_rn(weight(v), total), dtype);
        if (x > 0) sum = add(sum, rounded(mul(x, rounded(log_normal(rounded(add(x, 1e-10), dtype)), dtype)), dtype));
      }
      c.confidence = rounded(block_sum(sum, part), dtype);
    }
  }
  if (threadIdx.x == 0) out[blockIdx.x] = c;
}
