//go:build cuda

package cudaop

/*
#cgo LDFLAGS: -lcublas
#include <cublas_v2.h>

// gemm is cublasGemmEx, with device addresses as numbers. A type is 0 for bf16 and 1
// for float32. Products of float32 factors are not rounded: no TF32.
static cublasStatus_t gemm(cublasHandle_t handle, int m, int n, int k, unsigned long long a, unsigned long long b,
                           float beta, unsigned long long c, int type, int otype) {
	const float one = 1;
	const cudaDataType in = type ? CUDA_R_32F : CUDA_R_16BF, out = otype ? CUDA_R_32F : CUDA_R_16BF;
	return cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &one, (const void *)a, in, k, (const void *)b, in, k,
	                    &beta, (void *)c, out, m, type ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F,
	                    CUBLAS_GEMM_DEFAULT);
}
*/
import "C"

import (
	"fmt"

	"gorgonia.org/cu"
	"gorgonia.org/tensor"
)

// blas is a cuBLAS handle in the device's own context. gorgonia.org/cu/blas has no
// product of bf16 matrices, and the engine's handle belongs to another context.
type blas struct{ handle C.cublasHandle_t }

// linear queues y = x wᵀ + beta y, with x [n,in], w [out,in] and y [n,out] in
// row-major order; x and w are of type dt, y is of type to, which is float32 if dt
// is; sums are float32.
func (b *blas) linear(y, x, w cu.DevicePtr, n, in, out int, beta float32, dt, to tensor.Dtype) error {
	if b.handle == nil {
		if s := C.cublasCreate(&b.handle); s != C.CUBLAS_STATUS_SUCCESS {
			return fmt.Errorf("cudaop: cublasCreate: status %d", int(s))
		}
	}
	// cuBLAS is column-major: it sees xᵀ, wᵀ and yᵀ, and computes yᵀ = w xᵀ.
	s := C.gemm(b.handle, C.int(out), C.int(n), C.int(in), C.ulonglong(w), C.ulonglong(x), C.float(beta), C.ulonglong(y),
		C.int(elementType(dt)), C.int(elementType(to)))
	if s != C.CUBLAS_STATUS_SUCCESS {
		return fmt.Errorf("cudaop: cublasGemmEx [%d %d] x [%d %d]: status %d", n, in, out, in, int(s))
	}
	return nil
}

func (b *blas) close() error {
	if b.handle == nil {
		return nil
	}
	if s := C.cublasDestroy(b.handle); s != C.CUBLAS_STATUS_SUCCESS {
		return fmt.Errorf("cudaop: cublasDestroy: status %d", int(s))
	}
	b.handle = nil
	return nil
}
