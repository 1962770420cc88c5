// What the harnesses of layers share: random values, and products by cuBLASLt, configured as in ../../blas.go.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cublasLt.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

using bf16 = __nv_bfloat16;
using i64 = long long;

#define OK(call)                                                                                  \
  do {                                                                                            \
    const int status = static_cast<int>(call);                                                    \
    if (status != 0) { std::printf("FAIL %s: status %d\n", #call, status); std::exit(1); }         \
  } while (0)

__global__ void fill(bf16* p, size_t n, unsigned seed, float scale) {
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n; i += static_cast<size_t>(gridDim.x) * blockDim.x) {
    unsigned long long x = i + (static_cast<unsigned long long>(seed) << 40) + 0x9E3779B97F4A7C15ull;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    p[i] = __float2bfloat16(scale * (static_cast<float>((x ^ x >> 31) >> 40) / 8388608.f - 1.f));
  }
}

static bf16* values(size_t n, unsigned seed, float scale = 1) {
  bf16* p;
  OK(cudaMalloc(&p, n * sizeof(bf16)));
  fill<<<4096, 256>>>(p, n, seed, scale);
  OK(cudaDeviceSynchronize());
  return p;
}

// Product is y = x wᵀ + bias by cuBLASLt, of n rows, with up to `most` algorithms.
struct Product {
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t w, x, y;
  std::vector<cublasLtMatmulAlgo_t> algorithms;  // in the order of the heuristic
  Product(cublasLtHandle_t lt, i64 n, i64 in, i64 out, bool biased, const void* bias, size_t workspace, int most = 8, bool wide = false) {
    const cublasOperation_t transpose = CUBLAS_OP_T;
    OK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose));
    if (biased) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      const cudaDataType_t type = CUDA_R_16BF;
      OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
      OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
      OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    }
    OK(cublasLtMatrixLayoutCreate(&w, CUDA_R_16BF, in, out, in));
    OK(cublasLtMatrixLayoutCreate(&x, CUDA_R_16BF, in, n, in));
    OK(cublasLtMatrixLayoutCreate(&y, wide ? CUDA_R_32F : CUDA_R_16BF, out, n, out));
    cublasLtMatmulPreference_t preference;
    OK(cublasLtMatmulPreferenceCreate(&preference));
    OK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    std::vector<cublasLtMatmulHeuristicResult_t> found(most);
    int count = 0;
    OK(cublasLtMatmulAlgoGetHeuristic(lt, desc, w, x, y, y, preference, most, found.data(), &count));
    if (count == 0) { std::printf("FAIL no algorithm for %lld x %lld x %lld\n", n, in, out); std::exit(1); }
    for (int i = 0; i < count; i++) {
      if (found[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(found[i].algo);
    }
    cublasLtMatmulPreferenceDestroy(preference);
  }
};
