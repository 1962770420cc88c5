//go:build cuda

package cudaop

/*
#cgo LDFLAGS: -lcublasLt
#include <cublasLt.h>
#include <cuda.h>

// A product as cuBLASLt takes it, with the algorithms that its heuristic offers, the one first that it takes for the fastest.
typedef struct {
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t w, x, y;
	cublasLtMatmulAlgo_t algorithms[8];
	int count;
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
// yᵀ = w xᵀ. A type is 0 for bf16 and 1 for float32; addresses are multiples of alignment. There is one algorithm, or up to 8
// with several.
static cublasStatus_t prepare(cublasLtHandle_t lt, plan *p, long long n, long long in, long long out, int type, int otype,
                              unsigned long long bias, unsigned alignment, size_t workspace, int several) {
	const cudaDataType_t from = type ? CUDA_R_32F : CUDA_R_16BF, to = otype ? CUDA_R_32F : CUDA_R_16BF;
	const cublasOperation_t transpose = CUBLAS_OP_T;
	const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
	cublasLtMatmulPreference_t preference = NULL;
	cublasLtMatmulHeuristicResult_t found[8];
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
		status = cublasLtMatmulAlgoGetHeuristic(lt, p->desc, p->w, p->x, p->y, p->y, preference, several ? 8 : 1, found, &count);
	cublasLtMatmulPreferenceDestroy(preference);
	CHECK(status);
	for (int i = 0; i < count; i++)
		if (found[i].state == CUBLAS_STATUS_SUCCESS) p->algorithms[p->count++] = found[i].algo;
	return p->count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

// multiply gives a stream the product by one of the algorithms, with beta times c added to it.
static cublasStatus_t multiply(cublasLtHandle_t lt, plan *p, int algorithm, unsigned long long w, unsigned long long x, unsigned long long bias,
                               float beta, unsigned long long c, unsigned long long y, unsigned long long workspace, size_t size, cudaStream_t stream) {
	const float one = 1;
	if (bias) CHECK(set_bias(p, bias));
	return cublasLtMatmul(lt, p->desc, &one, (const void *)w, p->w, (const void *)x, p->x, &beta, (const void *)c, p->y,
	                      (void *)y, p->y, &p->algorithms[algorithm], (void *)workspace, size, stream);
}
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/cu"
	"gorgonia.org/tensor"
)

// blas is cuBLASLt in the device's own context, with plans of the products that it
// has done: calling its heuristic takes longer than launching a product.
type blas struct {
	handle C.cublasLtHandle_t
	plans  map[shape]*plan
}

// blasWorkspace is what NVIDIA recommends for Hopper, in bytes.
const blasWorkspace = 32 << 20

// plan is cuBLASLt's description of products of one shape, with its algorithms.
type plan struct {
	shape   shape
	number  int // in the queue's list
	made    C.plan
	fastest int // of its algorithms
}

func (p *plan) algorithms() int { return int(p.made.count) }

// shape has the properties that products with one plan share.
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
	inPlace                 bool         // y is residual
	workspace               cu.DevicePtr // blasWorkspace bytes
	trial                   cu.DevicePtr // for a result in place while algorithms are tried; 0 for none
}

// multiply queues a product, after setting its workspace and trial memory to the planned
// addresses. A plan has them for any GPU, also for products of few rows, which take none.
func (c *call) multiply(p product) (err error) {
	if c.isFew(p) {
		return c.multiplyFew(p, false)
	}
	if p.workspace = c.workspace; p.workspace == 0 {
		if p.workspace, err = c.scratch(blasWorkspace); err != nil {
			return err
		}
	}
	if p.inPlace && worthTrying(p) {
		if p.trial, err = c.source.take(exec.KindSpare, nil, int64(p.n)*int64(p.out)*int64(p.to.Size()), exec.Activations); err != nil {
			return err
		}
	}
	if c.isPlan() {
		return nil
	}
	return c.runner.multiply(p)
}

func (d *runner) multiply(p product) error {
	b := &d.blas
	if b.handle == nil {
		if s := C.cublasLtCreate(&b.handle); s != C.CUBLAS_STATUS_SUCCESS {
			return fmt.Errorf("cudaop: cublasLtCreate: status %d", int(s))
		}
		b.plans = map[shape]*plan{}
	}
	s := shape{p.n, p.in, p.out, p.dt, p.to, p.bias != 0, 256}
	for (uint64(p.y|p.x|p.w|p.bias|p.residual))%s.alignment != 0 {
		s.alignment /= 2
	}
	how := b.plans[s]
	if how == nil {
		how = &plan{shape: s, number: len(d.queue.plans)}
		several := C.int(0)
		if worthTrying(p) {
			several = 1
		}
		if status := C.prepare(b.handle, &how.made, C.longlong(p.n), C.longlong(p.in), C.longlong(p.out), C.int(elementType(p.dt)), C.int(elementType(p.to)),
			C.ulonglong(p.bias), C.uint(s.alignment), blasWorkspace, several); status != C.CUBLAS_STATUS_SUCCESS {
			C.drop(&how.made)
			return fmt.Errorf("cudaop: cuBLAS has no product [%d %d] x [%d %d]: status %d", p.n, p.in, p.out, p.in, int(status))
		}
		b.plans[s] = how
		d.queue.plans = append(d.queue.plans, how)
		if err := d.tuneAlgorithm(s, how, p); err != nil {
			return err
		}
	}
	return d.queue.multiply(how, how.fastest, p)
}

// start gives a stream a product by one of its plan's algorithms: of w and x, with a bias
// and what is added, to y, with a workspace.
func (b *blas) start(stream C.CUstream, how *plan, algorithm int, at []uint64) error {
	w, x, bias, c, y, workspace := at[0], at[1], at[2], at[3], at[4], at[5]
	beta := C.float(1)
	if c == 0 {
		beta, c = 0, y
	}
	if status := C.multiply(b.handle, &how.made, C.int(algorithm), C.ulonglong(w), C.ulonglong(x), C.ulonglong(bias), beta, C.ulonglong(c), C.ulonglong(y),
		C.ulonglong(workspace), blasWorkspace, C.cudaStream_t(unsafe.Pointer(stream))); status != C.CUBLAS_STATUS_SUCCESS {
		s := how.shape
		return fmt.Errorf("cudaop: cublasLtMatmul [%d %d] x [%d %d]: status %d", s.n, s.in, s.out, s.in, int(status))
	}
	return nil
}

func (b *blas) close() error {
	for _, p := range b.plans {
		C.drop(&p.made)
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
