/* Found before cuDNN's own cudnn.h, so that gorgonia.org/cu/dnn, written for
   cuDNN 8, compiles with cuDNN 9. Older versions get their own header, unchanged. */
#ifndef PULSECOL_COMPAT_CUDNN_H
#define PULSECOL_COMPAT_CUDNN_H

#include_next <cudnn.h>

#if CUDNN_MAJOR >= 9
/* What cuDNN 9 removed and cu/dnn has Go functions for answers that it is not
   supported. It is inline here and nowhere else, so that a program needs no more
   than this header. */
#define PULSECOL_REMOVED { return CUDNN_STATUS_NOT_SUPPORTED; }

/* cu/dnn has Go types around these descriptors of an algorithm; nothing in cu or
   Gorgonia makes one. */
typedef struct cudnnAlgorithmStruct *cudnnAlgorithmDescriptor_t;
typedef struct cudnnAlgorithmUnionStruct {
	union Algorithm {
		cudnnConvolutionFwdAlgo_t convFwdAlgo;
		cudnnConvolutionBwdFilterAlgo_t convBwdFilterAlgo;
		cudnnConvolutionBwdDataAlgo_t convBwdDataAlgo;
		cudnnRNNAlgo_t RNNAlgo;
		cudnnCTCLossAlgo_t CTCLossAlgo;
	} algo;
} cudnnAlgorithm_t;
static inline cudnnStatus_t cudnnCreateAlgorithmDescriptor(cudnnAlgorithmDescriptor_t *desc)
	PULSECOL_REMOVED
static inline cudnnStatus_t cudnnSetAlgorithmDescriptor(cudnnAlgorithmDescriptor_t desc, cudnnAlgorithm_t algo)
	PULSECOL_REMOVED
static inline cudnnStatus_t cudnnDestroyAlgorithmDescriptor(cudnnAlgorithmDescriptor_t desc)
	PULSECOL_REMOVED

/* The same for the measured speed of an algorithm. */
typedef struct cudnnAlgorithmPerformanceStruct *cudnnAlgorithmPerformance_t;
static inline cudnnStatus_t cudnnCreateAlgorithmPerformance(cudnnAlgorithmPerformance_t *perf, int count)
	PULSECOL_REMOVED
static inline cudnnStatus_t cudnnSetAlgorithmPerformance(cudnnAlgorithmPerformance_t perf, cudnnAlgorithmDescriptor_t desc,
                                           cudnnStatus_t status, float time, size_t memory)
	PULSECOL_REMOVED
static inline cudnnStatus_t cudnnDestroyAlgorithmPerformance(cudnnAlgorithmPerformance_t *perf, int count)
	PULSECOL_REMOVED

/* Plans of persistent RNNs went with the RNN functions of cuDNN 6 to 8. */
typedef struct cudnnPersistentRNNPlan *cudnnPersistentRNNPlan_t;
static inline cudnnStatus_t cudnnCreatePersistentRNNPlan(cudnnRNNDescriptor_t rnn, const int batch, const cudnnDataType_t type,
                                           cudnnPersistentRNNPlan_t *plan)
	PULSECOL_REMOVED
static inline cudnnStatus_t cudnnSetPersistentRNNPlan(cudnnRNNDescriptor_t rnn, cudnnPersistentRNNPlan_t plan)
	PULSECOL_REMOVED
static inline cudnnStatus_t cudnnDestroyPersistentRNNPlan(cudnnPersistentRNNPlan_t plan)
	PULSECOL_REMOVED

/* cuDNN 9 takes the maths type in cudnnSetRNNDescriptor_v8 alone. */
static inline cudnnStatus_t cudnnSetRNNMatrixMathType(cudnnRNNDescriptor_t rnn, cudnnMathType_t math)
	PULSECOL_REMOVED
#endif

#endif
