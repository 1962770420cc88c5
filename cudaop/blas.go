//go:build cuda

package cudaop

/*
#cgo LDFLAGS: -lcublasLt
#include <cublasLt.h>

// A product as cuBLASLt takes it, with what its heuristic has chosen.
typedef struct {
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t w, x, y;
	cublasLtMatmulAlgo_t algo;
} plan;

static void drop(plan *p) {
	if (p->y) cublasLtMatrixLayoutDestroy(p->y);
	if (p->x) cublasLtMatrixLayoutDestroy(p->x);
	if (p->w) cublasLtMatrixLayoutDestroy(p->w);
	if (p->desc) cublasLtMatmulDescDestroy(p->desc);
}

#define CHECK(call) \
	do { const cublasStatus_t s_ = (call); if (s_ != CUBLAS_STATUS_SUCCESS) return s_; } while (0)

static cublasStatus_t set_bias(plan *p, unsigned long long bias) {
	const void *at = (const void *)bias;
	return cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at, sizeof at);
}

// prepare makes the plan of y [n,out] = x [n,in] w [out,in]ᵀ. cuBLAS is column-major: it sees xᵀ, wᵀ and yᵀ, and computes
// yᵀ = w xᵀ. A type is 0 for bf16 and 1 for float32; addresses are multiples of alignment.
static cublasStatus_t prepare(cublasLtHandle_t lt, plan *p, long long n, long long in, long long out, int type, int otype,
                              unsigned long long bias, unsigned alignment, size_t workspace) {
	const cudaDataType_t from = type ? CUDA_R_32F : CUDA_R_16BF, to = otype ? CUDA_R_32F : CUDA_R_16BF;
	const cublasOperation_t transpose = CUBLAS_OP_T;
	const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
	cublasLtMatmulPreference_t preference = NULL;
	cublasLtMatmulHeuristicResult_t found;
	int count = 0;
	CHECK(cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
	CHECK(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose));
	if (bias) {
		CHECK(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
		CHECK(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &to, sizeof to));
		CHECK(set_bias(p, bias));
	}
	CHECK(cublasLtMatrixLayoutCreate(&p->w, from, in, out, in));
	CHECK(cublasLtMatrixLayoutCreate(&p->x, from, in, n, in));
	CHECK(cublasLtMatrixLayoutCreate(&p->y, to, out, n, out));
	CHECK(cublasLtMatmulPreferenceCreate(&preference));
	cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
	const cublasLtMatmulPreferenceAttributes_t alignments[] = {
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
	};
	for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++)
		status = cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment, sizeof alignment);
	if (status == CUBLAS_STATUS_SUCCESS)
		status = cublasLtMatmulAlgoGetHeuristic(lt, p->desc, p->w, p->x, p->y, p->y, preference, 1, &found, &count);
	cublasLtMatmulPreferenceDestroy(preference);
	CHECK(status);
	if (count == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
	p->algo = found.algo;
	return CUBLAS_STATUS_SUCCESS;
}

// multiply queues the product, with beta times c added to it.
static cublasStatus_t multiply(cublasLtHandle_t lt, plan *p, unsigned long long w, unsigned long long x, unsigned long long bias,
                               float beta, unsigned long long c, unsigned long long y, unsigned long long workspace, size_t size) {
	const float one = 1;
	if (bias) CHECK(set_bias(p, bias));
	return cublasLtMatmul(lt, p->desc, &one, (const void *)w, p->w, (const void *)x, p->x, &beta, (const void *)c, p->y,
	                      (void *)y, p->y, &p->algo, (void *)workspace, size, NULL);
}
*/
import "C"

import (
	"fmt"

	"gorgonia.org/cu"
	"gorgonia.org/tensor"
)

// blas is cuBLASLt in the device's own context, with plans of the products that it
// has done: asking its heuristic takes longer than launching what that chooses.
type blas struct {
	handle    C.cublasLtHandle_t
	plans     map[shape]*C.plan
	workspace cu.DevicePtr
}

// blasWorkspace is what NVIDIA recommends for Hopper, in bytes.
const blasWorkspace = 32 << 20

// shape is what products with one plan have in common.
type shape struct {
	n, in, out int
	dt, to     tensor.Dtype // of the factors, and of what is added and the result
	biased     bool
	alignment  uint64 // of all addresses, up to 256
}

// product is y = x wᵀ + bias + residual with x [n,in], w [out,in], bias [out],
// residual and y [n,out], row-major. bias and residual may be 0, residual may be y.
// x and w are of type dt, the rest is of type to, which is float32 if dt is. Sums
// are float32; float32 factors are not rounded.
type product struct {
	y, x, w, bias, residual cu.DevicePtr
	n, in, out              int
	dt, to                  tensor.Dtype
}

// multiply queues a product. It runs on the engine's thread.
func (d *device) multiply(p product) error {
	b := &d.blas
	if b.handle == nil {
		if s := C.cublasLtCreate(&b.handle); s != C.CUBLAS_STATUS_SUCCESS {
			return fmt.Errorf("cudaop: cublasLtCreate: status %d", int(s))
		}
		b.plans = map[shape]*C.plan{}
	}
	if b.workspace == 0 {
		var err error
		if b.workspace, err = d.memory.get(blasWorkspace); err != nil {
			return err
		}
	}
	s := shape{p.n, p.in, p.out, p.dt, p.to, p.bias != 0, 256}
	for (uint64(p.y|p.x|p.w|p.bias|p.residual))%s.alignment != 0 {
		s.alignment /= 2
	}
	plan := b.plans[s]
	if plan == nil {
		plan = new(C.plan)
		if status := C.prepare(b.handle, plan, C.longlong(p.n), C.longlong(p.in), C.longlong(p.out), C.int(elementType(p.dt)), C.int(elementType(p.to)),
			C.ulonglong(p.bias), C.uint(s.alignment), blasWorkspace); status != C.CUBLAS_STATUS_SUCCESS {
			C.drop(plan)
			return fmt.Errorf("cudaop: cuBLAS has no product [%d %d] x [%d %d]: status %d", p.n, p.in, p.out, p.in, int(status))
		}
		b.plans[s] = plan
	}
	beta, c := C.float(0), p.y
	if p.residual != 0 {
		beta, c = 1, p.residual
	}
	if status := C.multiply(b.handle, plan, C.ulonglong(p.w), C.ulonglong(p.x), C.ulonglong(p.bias), beta, C.ulonglong(c), C.ulonglong(p.y),
		C.ulonglong(b.workspace), blasWorkspace); status != C.CUBLAS_STATUS_SUCCESS {
		return fmt.Errorf("cudaop: cublasLtMatmul [%d %d] x [%d %d]: status %d", p.n, p.in, p.out, p.in, int(status))
	}
	return nil
}

func (b *blas) close() error {
	for _, p := range b.plans {
		C.drop(p)
	}
	clear(b.plans)
	if b.handle == nil {
		return nil
	}
	if s := C.cublasLtDestroy(b.handle); s != C.CUBLAS_STATUS_SUCCESS {
		return fmt.Errorf("cudaop: cublasLtDestroy: status %d", int(s))
	}
	b.handle = nil
	return nil
}
