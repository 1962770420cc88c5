//go:build cuda

#include <cudnn.h> // in quotes it would be found in this folder, and cuDNN's own header not behind it

#ifndef CUDNN_MAJOR
#error "the header of cuDNN itself is missing"
#endif

#if CUDNN_MAJOR >= 9
/* What cuDNN 9 removed and gorgonia.org/cu/dnn still links to. */
cudnnStatus_t cudnnCreateAlgorithmDescriptor(cudnnAlgorithmDescriptor_t *desc) { return CUDNN_STATUS_NOT_SUPPORTED; }
cudnnStatus_t cudnnSetAlgorithmDescriptor(cudnnAlgorithmDescriptor_t desc, cudnnAlgorithm_t algo) { return CUDNN_STATUS_NOT_SUPPORTED; }
cudnnStatus_t cudnnDestroyAlgorithmDescriptor(cudnnAlgorithmDescriptor_t desc) { return CUDNN_STATUS_NOT_SUPPORTED; }
cudnnStatus_t cudnnCreateAlgorithmPerformance(cudnnAlgorithmPerformance_t *perf, int count) { return CUDNN_STATUS_NOT_SUPPORTED; }
cudnnStatus_t cudnnSetAlgorithmPerformance(cudnnAlgorithmPerformance_t perf, cudnnAlgorithmDescriptor_t desc,
                                           cudnnStatus_t status, float time, size_t memory) { return CUDNN_STATUS_NOT_SUPPORTED; }
cudnnStatus_t cudnnDestroyAlgorithmPerformance(cudnnAlgorithmPerformance_t *perf, int count) { return CUDNN_STATUS_NOT_SUPPORTED; }
cudnnStatus_t cudnnCreatePersistentRNNPlan(cudnnRNNDescriptor_t rnn, const int batch, const cudnnDataType_t type,
                                           cudnnPersistentRNNPlan_t *plan) { return CUDNN_STATUS_NOT_SUPPORTED; }
cudnnStatus_t cudnnSetPersistentRNNPlan(cudnnRNNDescriptor_t rnn, cudnnPersistentRNNPlan_t plan) { return CUDNN_STATUS_NOT_SUPPORTED; }
cudnnStatus_t cudnnDestroyPersistentRNNPlan(cudnnPersistentRNNPlan_t plan) { return CUDNN_STATUS_NOT_SUPPORTED; }
cudnnStatus_t cudnnSetRNNMatrixMathType(cudnnRNNDescriptor_t rnn, cudnnMathType_t math) { return CUDNN_STATUS_NOT_SUPPORTED; }
#endif
