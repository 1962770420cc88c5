/* Stub of cublas_v2.h for type checks without CUDA; see README.md. */
#ifndef PULSECOL_STUB_CUBLAS_V2_H
#define PULSECOL_STUB_CUBLAS_V2_H

#include <cuda.h>

typedef struct cublasContext *cublasHandle_t;
typedef struct { float x, y; } cuComplex;
typedef struct { double x, y; } cuDoubleComplex;

typedef enum {
	CUBLAS_FILL_MODE_LOWER = 0, CUBLAS_FILL_MODE_UPPER = 1,
} cublasFillMode_t;
typedef enum {
	CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3,
	CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_MAPPING_ERROR = 11,
	CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR = 14, CUBLAS_STATUS_NOT_SUPPORTED = 15,
	CUBLAS_STATUS_LICENSE_ERROR = 16,
} cublasStatus_t;
typedef enum {
	CUBLAS_DIAG_NON_UNIT = 0, CUBLAS_DIAG_UNIT = 1,
} cublasDiagType_t;
typedef enum {
	CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1,
} cublasSideMode_t;
typedef enum {
	CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2,
} cublasOperation_t;

cublasStatus_t cublasCaxpy(cublasHandle_t, int, const cuComplex *, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCcopy(cublasHandle_t, int, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCdgmm(cublasHandle_t, cublasSideMode_t, int, int, const cuComplex *, int, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCdotc(cublasHandle_t, int, const cuComplex *, int, const cuComplex *, int, cuComplex *);
cublasStatus_t cublasCdotu(cublasHandle_t, int, const cuComplex *, int, const cuComplex *, int, cuComplex *);
cublasStatus_t cublasCgbmv(cublasHandle_t, cublasOperation_t, int, int, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasCgeam(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCgemm(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasCgemm3m(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasCgemv(cublasHandle_t, cublasOperation_t, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasCgerc(cublasHandle_t, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCgeru(cublasHandle_t, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasChbmv(cublasHandle_t, cublasFillMode_t, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasChemm(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasChemv(cublasHandle_t, cublasFillMode_t, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasCher(cublasHandle_t, cublasFillMode_t, int, const float *, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCher2(cublasHandle_t, cublasFillMode_t, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCher2k(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const float *, cuComplex *, int);
cublasStatus_t cublasCherk(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const float *, const cuComplex *, int, const float *, cuComplex *, int);
cublasStatus_t cublasCherkx(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const float *, cuComplex *, int);
cublasStatus_t cublasChpmv(cublasHandle_t, cublasFillMode_t, int, const cuComplex *, const cuComplex *, const cuComplex *, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasChpr(cublasHandle_t, cublasFillMode_t, int, const float *, const cuComplex *, int, cuComplex *);
cublasStatus_t cublasChpr2(cublasHandle_t, cublasFillMode_t, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, cuComplex *);
cublasStatus_t cublasCreate(cublasHandle_t *);
cublasStatus_t cublasCrot(cublasHandle_t, int, cuComplex *, int, cuComplex *, int, const float *, const cuComplex *);
cublasStatus_t cublasCscal(cublasHandle_t, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasCsscal(cublasHandle_t, int, const float *, cuComplex *, int);
cublasStatus_t cublasCswap(cublasHandle_t, int, cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCsymm(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasCsymv(cublasHandle_t, cublasFillMode_t, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasCsyr(cublasHandle_t, cublasFillMode_t, int, const cuComplex *, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCsyr2(cublasHandle_t, cublasFillMode_t, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCsyr2k(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasCsyrk(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasCsyrkx(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasCtbmv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, int, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCtbsv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, int, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCtpmv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasCtpsv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasCtpttr(cublasHandle_t, cublasFillMode_t, int, const cuComplex *, cuComplex *, int);
cublasStatus_t cublasCtrmv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCtrsm(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, int, const cuComplex *, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCtrsv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const cuComplex *, int, cuComplex *, int);
cublasStatus_t cublasCtrttp(cublasHandle_t, cublasFillMode_t, int, const cuComplex *, int, cuComplex *);
cublasStatus_t cublasDasum(cublasHandle_t, int, const double *, int, double *);
cublasStatus_t cublasDaxpy(cublasHandle_t, int, const double *, const double *, int, double *, int);
cublasStatus_t cublasDcopy(cublasHandle_t, int, const double *, int, double *, int);
cublasStatus_t cublasDdgmm(cublasHandle_t, cublasSideMode_t, int, int, const double *, int, const double *, int, double *, int);
cublasStatus_t cublasDdot(cublasHandle_t, int, const double *, int, const double *, int, double *);
cublasStatus_t cublasDestroy(cublasHandle_t);
cublasStatus_t cublasDgbmv(cublasHandle_t, cublasOperation_t, int, int, int, int, const double *, const double *, int, const double *, int, const double *, double *, int);
cublasStatus_t cublasDgeam(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, const double *, const double *, int, const double *, const double *, int, double *, int);
cublasStatus_t cublasDgemm(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const double *, const double *, int, const double *, int, const double *, double *, int);
cublasStatus_t cublasDgemv(cublasHandle_t, cublasOperation_t, int, int, const double *, const double *, int, const double *, int, const double *, double *, int);
cublasStatus_t cublasDger(cublasHandle_t, int, int, const double *, const double *, int, const double *, int, double *, int);
cublasStatus_t cublasDnrm2(cublasHandle_t, int, const double *, int, double *);
cublasStatus_t cublasDrot(cublasHandle_t, int, double *, int, double *, int, const double *, const double *);
cublasStatus_t cublasDrotg(cublasHandle_t, double *, double *, double *, double *);
cublasStatus_t cublasDrotm(cublasHandle_t, int, double *, int, double *, int, const double *);
cublasStatus_t cublasDrotmg(cublasHandle_t, double *, double *, double *, const double *, double *);
cublasStatus_t cublasDsbmv(cublasHandle_t, cublasFillMode_t, int, int, const double *, const double *, int, const double *, int, const double *, double *, int);
cublasStatus_t cublasDscal(cublasHandle_t, int, const double *, double *, int);
cublasStatus_t cublasDspmv(cublasHandle_t, cublasFillMode_t, int, const double *, const double *, const double *, int, const double *, double *, int);
cublasStatus_t cublasDspr(cublasHandle_t, cublasFillMode_t, int, const double *, const double *, int, double *);
cublasStatus_t cublasDspr2(cublasHandle_t, cublasFillMode_t, int, const double *, const double *, int, const double *, int, double *);
cublasStatus_t cublasDswap(cublasHandle_t, int, double *, int, double *, int);
cublasStatus_t cublasDsymm(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, int, int, const double *, const double *, int, const double *, int, const double *, double *, int);
cublasStatus_t cublasDsymv(cublasHandle_t, cublasFillMode_t, int, const double *, const double *, int, const double *, int, const double *, double *, int);
cublasStatus_t cublasDsyr(cublasHandle_t, cublasFillMode_t, int, const double *, const double *, int, double *, int);
cublasStatus_t cublasDsyr2(cublasHandle_t, cublasFillMode_t, int, const double *, const double *, int, const double *, int, double *, int);
cublasStatus_t cublasDsyr2k(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const double *, const double *, int, const double *, int, const double *, double *, int);
cublasStatus_t cublasDsyrk(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const double *, const double *, int, const double *, double *, int);
cublasStatus_t cublasDsyrkx(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const double *, const double *, int, const double *, int, const double *, double *, int);
cublasStatus_t cublasDtbmv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, int, const double *, int, double *, int);
cublasStatus_t cublasDtbsv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, int, const double *, int, double *, int);
cublasStatus_t cublasDtpmv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const double *, double *, int);
cublasStatus_t cublasDtpsv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const double *, double *, int);
cublasStatus_t cublasDtpttr(cublasHandle_t, cublasFillMode_t, int, const double *, double *, int);
cublasStatus_t cublasDtrmv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const double *, int, double *, int);
cublasStatus_t cublasDtrsm(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, int, const double *, const double *, int, double *, int);
cublasStatus_t cublasDtrsv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const double *, int, double *, int);
cublasStatus_t cublasDtrttp(cublasHandle_t, cublasFillMode_t, int, const double *, int, double *);
cublasStatus_t cublasDzasum(cublasHandle_t, int, const cuDoubleComplex *, int, double *);
cublasStatus_t cublasDznrm2(cublasHandle_t, int, const cuDoubleComplex *, int, double *);
cublasStatus_t cublasIcamax(cublasHandle_t, int, const cuComplex *, int, int *);
cublasStatus_t cublasIcamin(cublasHandle_t, int, const cuComplex *, int, int *);
cublasStatus_t cublasIdamax(cublasHandle_t, int, const double *, int, int *);
cublasStatus_t cublasIdamin(cublasHandle_t, int, const double *, int, int *);
cublasStatus_t cublasIsamax(cublasHandle_t, int, const float *, int, int *);
cublasStatus_t cublasIsamin(cublasHandle_t, int, const float *, int, int *);
cublasStatus_t cublasIzamax(cublasHandle_t, int, const cuDoubleComplex *, int, int *);
cublasStatus_t cublasIzamin(cublasHandle_t, int, const cuDoubleComplex *, int, int *);
cublasStatus_t cublasSasum(cublasHandle_t, int, const float *, int, float *);
cublasStatus_t cublasSaxpy(cublasHandle_t, int, const float *, const float *, int, float *, int);
cublasStatus_t cublasScasum(cublasHandle_t, int, const cuComplex *, int, float *);
cublasStatus_t cublasScnrm2(cublasHandle_t, int, const cuComplex *, int, float *);
cublasStatus_t cublasScopy(cublasHandle_t, int, const float *, int, float *, int);
cublasStatus_t cublasSdgmm(cublasHandle_t, cublasSideMode_t, int, int, const float *, int, const float *, int, float *, int);
cublasStatus_t cublasSdot(cublasHandle_t, int, const float *, int, const float *, int, float *);
cublasStatus_t cublasSgbmv(cublasHandle_t, cublasOperation_t, int, int, int, int, const float *, const float *, int, const float *, int, const float *, float *, int);
cublasStatus_t cublasSgeam(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, const float *, const float *, int, const float *, const float *, int, float *, int);
cublasStatus_t cublasSgemm(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const float *, const float *, int, const float *, int, const float *, float *, int);
cublasStatus_t cublasSgemv(cublasHandle_t, cublasOperation_t, int, int, const float *, const float *, int, const float *, int, const float *, float *, int);
cublasStatus_t cublasSger(cublasHandle_t, int, int, const float *, const float *, int, const float *, int, float *, int);
cublasStatus_t cublasSnrm2(cublasHandle_t, int, const float *, int, float *);
cublasStatus_t cublasSrot(cublasHandle_t, int, float *, int, float *, int, const float *, const float *);
cublasStatus_t cublasSrotg(cublasHandle_t, float *, float *, float *, float *);
cublasStatus_t cublasSrotm(cublasHandle_t, int, float *, int, float *, int, const float *);
cublasStatus_t cublasSrotmg(cublasHandle_t, float *, float *, float *, const float *, float *);
cublasStatus_t cublasSsbmv(cublasHandle_t, cublasFillMode_t, int, int, const float *, const float *, int, const float *, int, const float *, float *, int);
cublasStatus_t cublasSscal(cublasHandle_t, int, const float *, float *, int);
cublasStatus_t cublasSspmv(cublasHandle_t, cublasFillMode_t, int, const float *, const float *, const float *, int, const float *, float *, int);
cublasStatus_t cublasSspr(cublasHandle_t, cublasFillMode_t, int, const float *, const float *, int, float *);
cublasStatus_t cublasSspr2(cublasHandle_t, cublasFillMode_t, int, const float *, const float *, int, const float *, int, float *);
cublasStatus_t cublasSswap(cublasHandle_t, int, float *, int, float *, int);
cublasStatus_t cublasSsymm(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, int, int, const float *, const float *, int, const float *, int, const float *, float *, int);
cublasStatus_t cublasSsymv(cublasHandle_t, cublasFillMode_t, int, const float *, const float *, int, const float *, int, const float *, float *, int);
cublasStatus_t cublasSsyr(cublasHandle_t, cublasFillMode_t, int, const float *, const float *, int, float *, int);
cublasStatus_t cublasSsyr2(cublasHandle_t, cublasFillMode_t, int, const float *, const float *, int, const float *, int, float *, int);
cublasStatus_t cublasSsyr2k(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const float *, const float *, int, const float *, int, const float *, float *, int);
cublasStatus_t cublasSsyrk(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const float *, const float *, int, const float *, float *, int);
cublasStatus_t cublasSsyrkx(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const float *, const float *, int, const float *, int, const float *, float *, int);
cublasStatus_t cublasStbmv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, int, const float *, int, float *, int);
cublasStatus_t cublasStbsv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, int, const float *, int, float *, int);
cublasStatus_t cublasStpmv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const float *, float *, int);
cublasStatus_t cublasStpsv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const float *, float *, int);
cublasStatus_t cublasStpttr(cublasHandle_t, cublasFillMode_t, int, const float *, float *, int);
cublasStatus_t cublasStrmv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const float *, int, float *, int);
cublasStatus_t cublasStrsm(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, int, const float *, const float *, int, float *, int);
cublasStatus_t cublasStrsv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const float *, int, float *, int);
cublasStatus_t cublasStrttp(cublasHandle_t, cublasFillMode_t, int, const float *, int, float *);
cublasStatus_t cublasZaxpy(cublasHandle_t, int, const cuDoubleComplex *, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZcopy(cublasHandle_t, int, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZdgmm(cublasHandle_t, cublasSideMode_t, int, int, const cuDoubleComplex *, int, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZdotc(cublasHandle_t, int, const cuDoubleComplex *, int, const cuDoubleComplex *, int, cuDoubleComplex *);
cublasStatus_t cublasZdotu(cublasHandle_t, int, const cuDoubleComplex *, int, const cuDoubleComplex *, int, cuDoubleComplex *);
cublasStatus_t cublasZdscal(cublasHandle_t, int, const double *, cuDoubleComplex *, int);
cublasStatus_t cublasZgbmv(cublasHandle_t, cublasOperation_t, int, int, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZgeam(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZgemm(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZgemm3m(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZgemv(cublasHandle_t, cublasOperation_t, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZgerc(cublasHandle_t, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZgeru(cublasHandle_t, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZhbmv(cublasHandle_t, cublasFillMode_t, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZhemm(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZhemv(cublasHandle_t, cublasFillMode_t, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZher(cublasHandle_t, cublasFillMode_t, int, const double *, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZher2(cublasHandle_t, cublasFillMode_t, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZher2k(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const double *, cuDoubleComplex *, int);
cublasStatus_t cublasZherk(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const double *, const cuDoubleComplex *, int, const double *, cuDoubleComplex *, int);
cublasStatus_t cublasZherkx(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const double *, cuDoubleComplex *, int);
cublasStatus_t cublasZhpmv(cublasHandle_t, cublasFillMode_t, int, const cuDoubleComplex *, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZhpr(cublasHandle_t, cublasFillMode_t, int, const double *, const cuDoubleComplex *, int, cuDoubleComplex *);
cublasStatus_t cublasZhpr2(cublasHandle_t, cublasFillMode_t, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, cuDoubleComplex *);
cublasStatus_t cublasZrot(cublasHandle_t, int, cuDoubleComplex *, int, cuDoubleComplex *, int, const double *, const cuDoubleComplex *);
cublasStatus_t cublasZscal(cublasHandle_t, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZswap(cublasHandle_t, int, cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZsymm(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZsymv(cublasHandle_t, cublasFillMode_t, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZsyr(cublasHandle_t, cublasFillMode_t, int, const cuDoubleComplex *, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZsyr2(cublasHandle_t, cublasFillMode_t, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZsyr2k(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZsyrk(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZsyrkx(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZtbmv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, int, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZtbsv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, int, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZtpmv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZtpsv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZtpttr(cublasHandle_t, cublasFillMode_t, int, const cuDoubleComplex *, cuDoubleComplex *, int);
cublasStatus_t cublasZtrmv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZtrsm(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZtrsv(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int, const cuDoubleComplex *, int, cuDoubleComplex *, int);
cublasStatus_t cublasZtrttp(cublasHandle_t, cublasFillMode_t, int, const cuDoubleComplex *, int, cuDoubleComplex *);

#endif
