/* Stub of cudnn.h for type checks without CUDA; see README.md. */
#ifndef PULSECOL_STUB_CUDNN_H
#define PULSECOL_STUB_CUDNN_H

#include <stddef.h>
#include <stdint.h>

#define CUDNN_MAJOR 9

typedef enum {
	CUDNN_STATUS_SUCCESS, CUDNN_STATUS_NOT_INITIALIZED, CUDNN_STATUS_ALLOC_FAILED, CUDNN_STATUS_BAD_PARAM,
	CUDNN_STATUS_INTERNAL_ERROR, CUDNN_STATUS_INVALID_VALUE, CUDNN_STATUS_ARCH_MISMATCH, CUDNN_STATUS_MAPPING_ERROR,
	CUDNN_STATUS_EXECUTION_FAILED, CUDNN_STATUS_NOT_SUPPORTED, CUDNN_STATUS_LICENSE_ERROR,
	CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING, CUDNN_STATUS_RUNTIME_IN_PROGRESS, CUDNN_STATUS_RUNTIME_FP_OVERFLOW
} cudnnStatus_t;
typedef enum {
	CUDNN_ACTIVATION_SIGMOID, CUDNN_ACTIVATION_RELU, CUDNN_ACTIVATION_TANH, CUDNN_ACTIVATION_CLIPPED_RELU,
	CUDNN_ACTIVATION_ELU, CUDNN_ACTIVATION_IDENTITY
} cudnnActivationMode_t;
typedef enum {
	CUDNN_ATTR_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION,
	CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
	CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
	CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS,
	CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINEHEUR_RESULTS,
	CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_ATTR_ENGINECFG_INTERMEDIATE_INFO, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
	CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
	CUDNN_ATTR_EXECUTION_PLAN_COMPUTED_INTERMEDIATE_UIDS, CUDNN_ATTR_EXECUTION_PLAN_RUN_ONLY_INTERMEDIATE_UIDS,
	CUDNN_ATTR_INTERMEDIATE_INFO_UNIQUE_ID, CUDNN_ATTR_INTERMEDIATE_INFO_SIZE,
	CUDNN_ATTR_INTERMEDIATE_INFO_DEPENDENT_DATA_UIDS, CUDNN_ATTR_INTERMEDIATE_INFO_DEPENDENT_ATTRIBUTES,
	CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
	CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
	CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
	CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
	CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
	CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_ATTR_OPERATION_GENSTATS_MODE,
	CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC,
	CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_OPS,
	CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_ATTR_TENSOR_DATA_TYPE,
	CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_VECTOR_COUNT,
	CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_ATTR_TENSOR_IS_VIRTUAL,
	CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_ATTR_VARIANT_PACK_INTERMEDIATES,
	CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_ATTR_LAYOUT_INFO_TENSOR_UID, CUDNN_ATTR_LAYOUT_INFO_TYPES,
	CUDNN_ATTR_KNOB_INFO_TYPE, CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE, CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE,
	CUDNN_ATTR_KNOB_INFO_STRIDE, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
	CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_ATTR_ENGINE_LAYOUT_INFO
} cudnnBackendAttributeName_t;
typedef enum {
	CUDNN_TYPE_HANDLE, CUDNN_TYPE_DATA_TYPE, CUDNN_TYPE_BOOLEAN, CUDNN_TYPE_INT64, CUDNN_TYPE_FLOAT, CUDNN_TYPE_DOUBLE,
	CUDNN_TYPE_VOID_PTR, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_TYPE_KNOB_TYPE,
	CUDNN_TYPE_NAN_PROPOGATION, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_TYPE_LAYOUT_TYPE, CUDNN_TYPE_ATTRIB_NAME,
	CUDNN_TYPE_POINTWISE_MODE, CUDNN_TYPE_BACKEND_DESCRIPTOR, CUDNN_TYPE_GENSTATS_MODE
} cudnnBackendAttributeType_t;
typedef enum {
	CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_BACKEND_ENGINE_DESCRIPTOR,
	CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
	CUDNN_BACKEND_INTERMEDIATE_INFO_DESCRIPTOR, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
	CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR, CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR,
	CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
	CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
	CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
	CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
	CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_BACKEND_TENSOR_DESCRIPTOR
} cudnnBackendDescriptorType_t;
typedef enum { CUDNN_HEUR_MODE_INSTANT, CUDNN_HEUR_MODES_COUNT } cudnnBackendHeurMode_t;
typedef enum {
	CUDNN_KNOB_TYPE_SPLIT_K, CUDNN_KNOB_TYPE_SWIZZLE, CUDNN_KNOB_TYPE_TILE_SIZE, CUDNN_KNOB_TYPE_USE_TEX,
	CUDNN_KNOB_TYPE_EDGE, CUDNN_KNOB_TYPE_KBLOCK, CUDNN_KNOB_TYPE_LDGA, CUDNN_KNOB_TYPE_LDGB, CUDNN_KNOB_TYPE_CHUNK_K,
	CUDNN_KNOB_TYPE_SPLIT_H, CUDNN_KNOB_TYPE_WINO_TILE, CUDNN_KNOB_TYPE_MULTIPLY, CUDNN_KNOB_TYPE_SPLIT_K_BUF,
	CUDNN_KNOB_TYPE_TILEK, CUDNN_KNOB_TYPE_STAGES, CUDNN_KNOB_TYPE_REDUCTION_MODE, CUDNN_KNOB_TYPE_CTA_SPLIT_K_MODE,
	CUDNN_KNOB_TYPE_SPLIT_K_SLC, CUDNN_KNOB_TYPE_IDX_MODE, CUDNN_KNOB_TYPE_SLICED, CUDNN_KNOB_TYPE_SPLIT_RS,
	CUDNN_KNOB_TYPE_SINGLEBUFFER, CUDNN_KNOB_TYPE_LDGC, CUDNN_KNOB_TYPE_SPECFILT, CUDNN_KNOB_TYPE_COUNTS
} cudnnBackendKnobType_t;
typedef enum {
	CUDNN_LAYOUT_TYPE_PREFERRED_NCHW, CUDNN_LAYOUT_TYPE_PREFERRED_NHWC, CUDNN_LAYOUT_TYPE_PREFERRED_PAD4CK,
	CUDNN_LAYOUT_TYPE_PREFERRED_PAD8CK, CUDNN_LAYOUT_TYPE_COUNT
} cudnnBackendLayoutType_t;
typedef enum {
	CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
	CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
	CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_TYPE_COUNT
} cudnnBackendNumericalNote_t;
typedef enum { CUDNN_BATCHNORM_PER_ACTIVATION, CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_SPATIAL_PERSISTENT } cudnnBatchNormMode_t;
typedef enum {
	CUDNN_BATCHNORM_OPS_BN, CUDNN_BATCHNORM_OPS_BN_ACTIVATION, CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION
} cudnnBatchNormOps_t;
typedef enum { CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, CUDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC } cudnnCTCLossAlgo_t;
typedef enum {
	CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
	CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING, CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
	CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT
} cudnnConvolutionBwdDataAlgo_t;
typedef enum {
	CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT,
	CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD,
	CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING,
	CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT
} cudnnConvolutionBwdFilterAlgo_t;
typedef enum {
	CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
	CUDNN_CONVOLUTION_FWD_ALGO_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, CUDNN_CONVOLUTION_FWD_ALGO_FFT,
	CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
	CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, CUDNN_CONVOLUTION_FWD_ALGO_COUNT
} cudnnConvolutionFwdAlgo_t;
typedef enum { CUDNN_CONVOLUTION, CUDNN_CROSS_CORRELATION } cudnnConvolutionMode_t;
typedef enum {
	CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_INT8, CUDNN_DATA_INT32, CUDNN_DATA_INT8x4,
	CUDNN_DATA_UINT8, CUDNN_DATA_UINT8x4, CUDNN_DATA_INT8x32
} cudnnDataType_t;
typedef enum { CUDNN_NON_DETERMINISTIC, CUDNN_DETERMINISTIC } cudnnDeterminism_t;
typedef enum { CUDNN_UNIDIRECTIONAL, CUDNN_BIDIRECTIONAL } cudnnDirectionMode_t;
typedef enum { CUDNN_DIVNORM_PRECOMPUTED_MEANS } cudnnDivNormMode_t;
typedef enum { CUDNN_ERRQUERY_RAWCODE, CUDNN_ERRQUERY_NONBLOCKING, CUDNN_ERRQUERY_BLOCKING } cudnnErrQueryMode_t;
typedef enum { CUDNN_TRANSFORM_FOLD, CUDNN_TRANSFORM_UNFOLD } cudnnFoldingDirection_t;
typedef enum { CUDNN_FWD_MODE_INFERENCE, CUDNN_FWD_MODE_TRAINING } cudnnForwardMode_t;
typedef enum {
	CUDNN_PARAM_XDESC, CUDNN_PARAM_XDATA_PLACEHOLDER, CUDNN_PARAM_BN_MODE, CUDNN_PARAM_BN_EQSCALEBIAS_DESC,
	CUDNN_PARAM_BN_EQSCALE_PLACEHOLDER, CUDNN_PARAM_BN_EQBIAS_PLACEHOLDER, CUDNN_PARAM_ACTIVATION_DESC,
	CUDNN_PARAM_CONV_DESC, CUDNN_PARAM_WDESC, CUDNN_PARAM_WDATA_PLACEHOLDER, CUDNN_PARAM_DWDESC,
	CUDNN_PARAM_DWDATA_PLACEHOLDER, CUDNN_PARAM_YDESC, CUDNN_PARAM_YDATA_PLACEHOLDER, CUDNN_PARAM_DYDESC,
	CUDNN_PARAM_DYDATA_PLACEHOLDER, CUDNN_PARAM_YSTATS_DESC, CUDNN_PARAM_YSUM_PLACEHOLDER,
	CUDNN_PARAM_YSQSUM_PLACEHOLDER, CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC, CUDNN_PARAM_BN_SCALE_PLACEHOLDER,
	CUDNN_PARAM_BN_BIAS_PLACEHOLDER, CUDNN_PARAM_BN_SAVED_MEAN_PLACEHOLDER, CUDNN_PARAM_BN_SAVED_INVSTD_PLACEHOLDER,
	CUDNN_PARAM_BN_RUNNING_MEAN_PLACEHOLDER, CUDNN_PARAM_BN_RUNNING_VAR_PLACEHOLDER, CUDNN_PARAM_ZDESC,
	CUDNN_PARAM_ZDATA_PLACEHOLDER, CUDNN_PARAM_BN_Z_EQSCALEBIAS_DESC, CUDNN_PARAM_BN_Z_EQSCALE_PLACEHOLDER,
	CUDNN_PARAM_BN_Z_EQBIAS_PLACEHOLDER, CUDNN_PARAM_ACTIVATION_BITMASK_DESC,
	CUDNN_PARAM_ACTIVATION_BITMASK_PLACEHOLDER, CUDNN_PARAM_DXDESC, CUDNN_PARAM_DXDATA_PLACEHOLDER, CUDNN_PARAM_DZDESC,
	CUDNN_PARAM_DZDATA_PLACEHOLDER, CUDNN_PARAM_BN_DSCALE_PLACEHOLDER, CUDNN_PARAM_BN_DBIAS_PLACEHOLDER
} cudnnFusedOpsConstParamLabel_t;
typedef enum { CUDNN_PTR_NULL, CUDNN_PTR_ELEM_ALIGNED, CUDNN_PTR_16B_ALIGNED } cudnnFusedOpsPointerPlaceHolder_t;
typedef enum {
	CUDNN_PTR_XDATA, CUDNN_PTR_BN_EQSCALE, CUDNN_PTR_BN_EQBIAS, CUDNN_PTR_WDATA, CUDNN_PTR_DWDATA, CUDNN_PTR_YDATA,
	CUDNN_PTR_DYDATA, CUDNN_PTR_YSUM, CUDNN_PTR_YSQSUM, CUDNN_PTR_WORKSPACE, CUDNN_PTR_BN_SCALE, CUDNN_PTR_BN_BIAS,
	CUDNN_PTR_BN_SAVED_MEAN, CUDNN_PTR_BN_SAVED_INVSTD, CUDNN_PTR_BN_RUNNING_MEAN, CUDNN_PTR_BN_RUNNING_VAR,
	CUDNN_PTR_ZDATA, CUDNN_PTR_BN_Z_EQSCALE, CUDNN_PTR_BN_Z_EQBIAS, CUDNN_PTR_ACTIVATION_BITMASK, CUDNN_PTR_DXDATA,
	CUDNN_PTR_DZDATA, CUDNN_PTR_BN_DSCALE, CUDNN_PTR_BN_DBIAS, CUDNN_SCALAR_SIZE_T_WORKSPACE_SIZE_IN_BYTES,
	CUDNN_SCALAR_INT64_T_BN_ACCUMULATION_COUNT, CUDNN_SCALAR_DOUBLE_BN_EXP_AVG_FACTOR, CUDNN_SCALAR_DOUBLE_BN_EPSILON
} cudnnFusedOpsVariantParamLabel_t;
typedef enum {
	CUDNN_FUSED_SCALE_BIAS_ACTIVATION_CONV_BNSTATS, CUDNN_FUSED_SCALE_BIAS_ACTIVATION_WGRAD,
	CUDNN_FUSED_BN_FINALIZE_STATISTICS_TRAINING, CUDNN_FUSED_BN_FINALIZE_STATISTICS_INFERENCE,
	CUDNN_FUSED_CONV_SCALE_BIAS_ADD_ACTIVATION, CUDNN_FUSED_SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK,
	CUDNN_FUSED_DACTIVATION_FORK_DBATCHNORM
} cudnnFusedOps_t;
typedef enum { CUDNN_GENSTATS_SUM_SQSUM } cudnnGenStatsMode_t;
typedef enum { CUDNN_32BIT_INDICES, CUDNN_64BIT_INDICES, CUDNN_16BIT_INDICES, CUDNN_8BIT_INDICES } cudnnIndicesType_t;
typedef enum { CUDNN_LRN_CROSS_CHANNEL_DIM1 } cudnnLRNMode_t;
typedef enum { CUDNN_LOSS_NORMALIZATION_NONE, CUDNN_LOSS_NORMALIZATION_SOFTMAX } cudnnLossNormalizationMode_t;
typedef enum { CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION, CUDNN_FMA_MATH } cudnnMathType_t;
typedef enum {
	CUDNN_MH_ATTN_Q_WEIGHTS, CUDNN_MH_ATTN_K_WEIGHTS, CUDNN_MH_ATTN_V_WEIGHTS, CUDNN_MH_ATTN_O_WEIGHTS,
	CUDNN_MH_ATTN_Q_BIASES, CUDNN_MH_ATTN_K_BIASES, CUDNN_MH_ATTN_V_BIASES, CUDNN_MH_ATTN_O_BIASES
} cudnnMultiHeadAttnWeightKind_t;
typedef enum { CUDNN_NOT_PROPAGATE_NAN, CUDNN_PROPAGATE_NAN } cudnnNanPropagation_t;
typedef enum { CUDNN_NORM_ALGO_STANDARD, CUDNN_NORM_ALGO_PERSIST } cudnnNormAlgo_t;
typedef enum { CUDNN_NORM_PER_ACTIVATION, CUDNN_NORM_PER_CHANNEL } cudnnNormMode_t;
typedef enum { CUDNN_NORM_OPS_NORM, CUDNN_NORM_OPS_NORM_ACTIVATION, CUDNN_NORM_OPS_NORM_ADD_ACTIVATION } cudnnNormOps_t;
typedef enum {
	CUDNN_OP_TENSOR_ADD, CUDNN_OP_TENSOR_MUL, CUDNN_OP_TENSOR_MIN, CUDNN_OP_TENSOR_MAX, CUDNN_OP_TENSOR_SQRT,
	CUDNN_OP_TENSOR_NOT
} cudnnOpTensorOp_t;
typedef enum {
	CUDNN_POINTWISE_ADD, CUDNN_POINTWISE_MUL, CUDNN_POINTWISE_MIN, CUDNN_POINTWISE_MAX, CUDNN_POINTWISE_SQRT,
	CUDNN_POINTWISE_RELU_FWD, CUDNN_POINTWISE_TANH_FWD, CUDNN_POINTWISE_SIGMOID_FWD, CUDNN_POINTWISE_ELU_FWD
} cudnnPointwiseMode_t;
typedef enum {
	CUDNN_POOLING_MAX, CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING, CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
	CUDNN_POOLING_MAX_DETERMINISTIC
} cudnnPoolingMode_t;
typedef enum {
	CUDNN_RNN_ALGO_STANDARD, CUDNN_RNN_ALGO_PERSIST_STATIC, CUDNN_RNN_ALGO_PERSIST_DYNAMIC, CUDNN_RNN_ALGO_COUNT
} cudnnRNNAlgo_t;
typedef enum { CUDNN_RNN_NO_BIAS, CUDNN_RNN_SINGLE_INP_BIAS, CUDNN_RNN_DOUBLE_BIAS, CUDNN_RNN_SINGLE_REC_BIAS } cudnnRNNBiasMode_t;
typedef enum { CUDNN_RNN_CLIP_NONE, CUDNN_RNN_CLIP_MINMAX } cudnnRNNClipMode_t;
typedef enum {
	CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
	CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED
} cudnnRNNDataLayout_t;
typedef enum { CUDNN_LINEAR_INPUT, CUDNN_SKIP_INPUT } cudnnRNNInputMode_t;
typedef enum { CUDNN_RNN_RELU, CUDNN_RNN_TANH, CUDNN_LSTM, CUDNN_GRU } cudnnRNNMode_t;
typedef enum { CUDNN_REDUCE_TENSOR_NO_INDICES, CUDNN_REDUCE_TENSOR_FLATTENED_INDICES } cudnnReduceTensorIndices_t;
typedef enum {
	CUDNN_REDUCE_TENSOR_ADD, CUDNN_REDUCE_TENSOR_MUL, CUDNN_REDUCE_TENSOR_MIN, CUDNN_REDUCE_TENSOR_MAX,
	CUDNN_REDUCE_TENSOR_AMAX, CUDNN_REDUCE_TENSOR_AVG, CUDNN_REDUCE_TENSOR_NORM1, CUDNN_REDUCE_TENSOR_NORM2,
	CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS
} cudnnReduceTensorOp_t;
typedef enum { CUDNN_DEFAULT_REORDER, CUDNN_NO_REORDER } cudnnReorderType_t;
typedef enum { CUDNN_SAMPLER_BILINEAR } cudnnSamplerType_t;
typedef enum { CUDNN_SEQDATA_TIME_DIM, CUDNN_SEQDATA_BATCH_DIM, CUDNN_SEQDATA_BEAM_DIM, CUDNN_SEQDATA_VECT_DIM } cudnnSeqDataAxis_t;
typedef enum { CUDNN_SEV_FATAL, CUDNN_SEV_ERROR, CUDNN_SEV_WARNING, CUDNN_SEV_INFO } cudnnSeverity_t;
typedef enum { CUDNN_SOFTMAX_FAST, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_LOG } cudnnSoftmaxAlgorithm_t;
typedef enum { CUDNN_SOFTMAX_MODE_INSTANCE, CUDNN_SOFTMAX_MODE_CHANNEL } cudnnSoftmaxMode_t;
typedef enum { CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC, CUDNN_TENSOR_NCHW_VECT_C } cudnnTensorFormat_t;
typedef enum { CUDNN_WGRAD_MODE_ADD, CUDNN_WGRAD_MODE_SET } cudnnWgradMode_t;

typedef struct cudnnActivationDescriptor *cudnnActivationDescriptor_t;
typedef struct cudnnAttnDescriptor *cudnnAttnDescriptor_t;
typedef struct cudnnBackendDescriptor *cudnnBackendDescriptor_t;
typedef struct cudnnCTCLossDescriptor *cudnnCTCLossDescriptor_t;
typedef struct cudnnConvolutionDescriptor *cudnnConvolutionDescriptor_t;
typedef struct cudnnDropoutDescriptor *cudnnDropoutDescriptor_t;
typedef struct cudnnFilterDescriptor *cudnnFilterDescriptor_t;
typedef struct cudnnFusedOpsConstParamPack *cudnnFusedOpsConstParamPack_t;
typedef struct cudnnFusedOpsVariantParamPack *cudnnFusedOpsVariantParamPack_t;
typedef struct cudnnHandle *cudnnHandle_t;
typedef struct cudnnLRNDescriptor *cudnnLRNDescriptor_t;
typedef struct cudnnOpTensorDescriptor *cudnnOpTensorDescriptor_t;
typedef struct cudnnPoolingDescriptor *cudnnPoolingDescriptor_t;
typedef struct cudnnRNNDataDescriptor *cudnnRNNDataDescriptor_t;
typedef struct cudnnRNNDescriptor *cudnnRNNDescriptor_t;
typedef struct cudnnReduceTensorDescriptor *cudnnReduceTensorDescriptor_t;
typedef struct cudnnSeqDataDescriptor *cudnnSeqDataDescriptor_t;
typedef struct cudnnSpatialTransformerDescriptor *cudnnSpatialTransformerDescriptor_t;
typedef struct cudnnTensorDescriptor *cudnnTensorDescriptor_t;
typedef struct cudnnTensorTransformDescriptor *cudnnTensorTransformDescriptor_t;
typedef struct { cudnnConvolutionFwdAlgo_t algo; cudnnStatus_t status; float time; size_t memory; cudnnDeterminism_t determinism; cudnnMathType_t mathType; int reserved[3]; } cudnnConvolutionFwdAlgoPerf_t;
typedef struct { cudnnConvolutionBwdFilterAlgo_t algo; cudnnStatus_t status; float time; size_t memory; cudnnDeterminism_t determinism; cudnnMathType_t mathType; int reserved[3]; } cudnnConvolutionBwdFilterAlgoPerf_t;
typedef struct { cudnnConvolutionBwdDataAlgo_t algo; cudnnStatus_t status; float time; size_t memory; cudnnDeterminism_t determinism; cudnnMathType_t mathType; int reserved[3]; } cudnnConvolutionBwdDataAlgoPerf_t;

cudnnStatus_t cudnnActivationBackward(cudnnHandle_t, cudnnActivationDescriptor_t, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnActivationForward(cudnnHandle_t, cudnnActivationDescriptor_t, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnAddTensor(cudnnHandle_t, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t *);
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t);
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t, void *);
cudnnStatus_t cudnnBatchNormalizationBackward(cudnnHandle_t, cudnnBatchNormMode_t, void *, void *, void *, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, void *, void *, double, void *, void *);
cudnnStatus_t cudnnBatchNormalizationForwardInference(cudnnHandle_t, cudnnBatchNormMode_t, void *, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, void *, void *, void *, double);
cudnnStatus_t cudnnBatchNormalizationForwardTraining(cudnnHandle_t, cudnnBatchNormMode_t, void *, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, void *, double, void *, void *, double, void *, void *);
cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t, void *, cudnnFilterDescriptor_t, void *, cudnnTensorDescriptor_t, void *, cudnnConvolutionDescriptor_t, cudnnConvolutionBwdDataAlgo_t, void *, size_t, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, cudnnConvolutionDescriptor_t, cudnnConvolutionBwdFilterAlgo_t, void *, size_t, void *, cudnnFilterDescriptor_t, void *);
cudnnStatus_t cudnnConvolutionBiasActivationForward(cudnnHandle_t, void *, cudnnTensorDescriptor_t, void *, cudnnFilterDescriptor_t, void *, cudnnConvolutionDescriptor_t, cudnnConvolutionFwdAlgo_t, void *, size_t, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, cudnnActivationDescriptor_t, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t, void *, cudnnTensorDescriptor_t, void *, cudnnFilterDescriptor_t, void *, cudnnConvolutionDescriptor_t, cudnnConvolutionFwdAlgo_t, void *, size_t, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnCreate(cudnnHandle_t *);
cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t *);
cudnnStatus_t cudnnCreateAttnDescriptor(cudnnAttnDescriptor_t *);
cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t *);
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *);
cudnnStatus_t cudnnCreateFusedOpsConstParamPack(cudnnFusedOpsConstParamPack_t *, cudnnFusedOps_t);
cudnnStatus_t cudnnCreateFusedOpsVariantParamPack(cudnnFusedOpsVariantParamPack_t *, cudnnFusedOps_t);
cudnnStatus_t cudnnCreateLRNDescriptor(cudnnLRNDescriptor_t *);
cudnnStatus_t cudnnCreateOpTensorDescriptor(cudnnOpTensorDescriptor_t *);
cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t *);
cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *);
cudnnStatus_t cudnnCreateReduceTensorDescriptor(cudnnReduceTensorDescriptor_t *);
cudnnStatus_t cudnnCreateSeqDataDescriptor(cudnnSeqDataDescriptor_t *);
cudnnStatus_t cudnnCreateSpatialTransformerDescriptor(cudnnSpatialTransformerDescriptor_t *);
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *);
cudnnStatus_t cudnnCreateTensorTransformDescriptor(cudnnTensorTransformDescriptor_t *);
cudnnStatus_t cudnnDeriveBNTensorDescriptor(cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnBatchNormMode_t);
cudnnStatus_t cudnnDestroy(cudnnHandle_t);
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t);
cudnnStatus_t cudnnDestroyAttnDescriptor(cudnnAttnDescriptor_t);
cudnnStatus_t cudnnDestroyCTCLossDescriptor(cudnnCTCLossDescriptor_t);
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t);
cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t);
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t);
cudnnStatus_t cudnnDestroyFusedOpsConstParamPack(cudnnFusedOpsConstParamPack_t);
cudnnStatus_t cudnnDestroyFusedOpsVariantParamPack(cudnnFusedOpsVariantParamPack_t);
cudnnStatus_t cudnnDestroyLRNDescriptor(cudnnLRNDescriptor_t);
cudnnStatus_t cudnnDestroyOpTensorDescriptor(cudnnOpTensorDescriptor_t);
cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t);
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t);
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t);
cudnnStatus_t cudnnDestroyReduceTensorDescriptor(cudnnReduceTensorDescriptor_t);
cudnnStatus_t cudnnDestroySeqDataDescriptor(cudnnSeqDataDescriptor_t);
cudnnStatus_t cudnnDestroySpatialTransformerDescriptor(cudnnSpatialTransformerDescriptor_t);
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t);
cudnnStatus_t cudnnDestroyTensorTransformDescriptor(cudnnTensorTransformDescriptor_t);
cudnnStatus_t cudnnDivisiveNormalizationBackward(cudnnHandle_t, cudnnLRNDescriptor_t, cudnnDivNormMode_t, void *, cudnnTensorDescriptor_t, void *, void *, void *, void *, void *, void *, cudnnTensorDescriptor_t, void *, void *);
cudnnStatus_t cudnnDivisiveNormalizationForward(cudnnHandle_t, cudnnLRNDescriptor_t, cudnnDivNormMode_t, void *, cudnnTensorDescriptor_t, void *, void *, void *, void *, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnDropoutBackward(cudnnHandle_t, cudnnDropoutDescriptor_t, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, void *, size_t);
cudnnStatus_t cudnnDropoutForward(cudnnHandle_t, cudnnDropoutDescriptor_t, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, void *, size_t);
cudnnStatus_t cudnnDropoutGetReserveSpaceSize(cudnnTensorDescriptor_t, size_t *);
cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t, size_t *);
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithm(cudnnHandle_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, int, int *, cudnnConvolutionBwdDataAlgoPerf_t *);
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(cudnnHandle_t, cudnnFilterDescriptor_t, void *, cudnnTensorDescriptor_t, void *, cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, void *, int, int *, cudnnConvolutionBwdDataAlgoPerf_t *, void *, size_t);
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithm(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t, cudnnFilterDescriptor_t, int, int *, cudnnConvolutionBwdFilterAlgoPerf_t *);
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(cudnnHandle_t, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, cudnnConvolutionDescriptor_t, cudnnFilterDescriptor_t, void *, int, int *, cudnnConvolutionBwdFilterAlgoPerf_t *, void *, size_t);
cudnnStatus_t cudnnFindConvolutionForwardAlgorithm(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t, cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, int, int *, cudnnConvolutionFwdAlgoPerf_t *);
cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t, cudnnTensorDescriptor_t, void *, cudnnFilterDescriptor_t, void *, cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, void *, int, int *, cudnnConvolutionFwdAlgoPerf_t *, void *, size_t);
cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t, int *, int *, int *, int *);
cudnnStatus_t cudnnGetConvolutionNdForwardOutputDim(cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t, int, int *);
cudnnStatus_t cudnnGetPooling2dForwardOutputDim(cudnnPoolingDescriptor_t, cudnnTensorDescriptor_t, int *, int *, int *, int *);
cudnnStatus_t cudnnGetPoolingNdForwardOutputDim(cudnnPoolingDescriptor_t, cudnnTensorDescriptor_t, int, int *);
cudnnStatus_t cudnnGetReductionIndicesSize(cudnnHandle_t, cudnnReduceTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, size_t *);
cudnnStatus_t cudnnGetReductionWorkspaceSize(cudnnHandle_t, cudnnReduceTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, size_t *);
cudnnStatus_t cudnnIm2Col(cudnnHandle_t, cudnnTensorDescriptor_t, void *, cudnnFilterDescriptor_t, cudnnConvolutionDescriptor_t, void *);
cudnnStatus_t cudnnLRNCrossChannelBackward(cudnnHandle_t, cudnnLRNDescriptor_t, cudnnLRNMode_t, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnLRNCrossChannelForward(cudnnHandle_t, cudnnLRNDescriptor_t, cudnnLRNMode_t, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnOpTensor(cudnnHandle_t, cudnnOpTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t, cudnnPoolingDescriptor_t, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnPoolingForward(cudnnHandle_t, cudnnPoolingDescriptor_t, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnReduceTensor(cudnnHandle_t, cudnnReduceTensorDescriptor_t, void *, size_t, void *, size_t, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t, cudnnHandle_t, float, void *, size_t, unsigned long long);
cudnnStatus_t cudnnScaleTensor(cudnnHandle_t, cudnnTensorDescriptor_t, void *, void *);
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t, cudnnActivationMode_t, cudnnNanPropagation_t, double);
cudnnStatus_t cudnnSetAttnDescriptor(cudnnAttnDescriptor_t, unsigned int, int, double, cudnnDataType_t, cudnnDataType_t, cudnnMathType_t, cudnnDropoutDescriptor_t, cudnnDropoutDescriptor_t, int, int, int, int, int, int, int, int, int, int, int);
cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t, cudnnHandle_t, float, void *, size_t, unsigned long long);
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t, cudnnDataType_t, cudnnTensorFormat_t, int, int, int, int);
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t, cudnnDataType_t, cudnnTensorFormat_t, int, int *);
cudnnStatus_t cudnnSetFusedOpsConstParamPackAttribute(cudnnFusedOpsConstParamPack_t, cudnnFusedOpsConstParamLabel_t, void *);
cudnnStatus_t cudnnSetFusedOpsVariantParamPackAttribute(cudnnFusedOpsVariantParamPack_t, cudnnFusedOpsVariantParamLabel_t, void *);
cudnnStatus_t cudnnSetLRNDescriptor(cudnnLRNDescriptor_t, unsigned int, double, double, double);
cudnnStatus_t cudnnSetOpTensorDescriptor(cudnnOpTensorDescriptor_t, cudnnOpTensorOp_t, cudnnDataType_t, cudnnNanPropagation_t);
cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t, cudnnPoolingMode_t, cudnnNanPropagation_t, int, int, int, int, int, int);
cudnnStatus_t cudnnSetPoolingNdDescriptor(cudnnPoolingDescriptor_t, cudnnPoolingMode_t, cudnnNanPropagation_t, int, int *, int *, int *);
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t, cudnnDataType_t, cudnnRNNDataLayout_t, int, int, int, int *, void *);
cudnnStatus_t cudnnSetReduceTensorDescriptor(cudnnReduceTensorDescriptor_t, cudnnReduceTensorOp_t, cudnnDataType_t, cudnnNanPropagation_t, cudnnReduceTensorIndices_t, cudnnIndicesType_t);
cudnnStatus_t cudnnSetSeqDataDescriptor(cudnnSeqDataDescriptor_t, cudnnDataType_t, int, int *, cudnnSeqDataAxis_t *, size_t, int *, void *);
cudnnStatus_t cudnnSetSpatialTransformerNdDescriptor(cudnnSpatialTransformerDescriptor_t, cudnnSamplerType_t, cudnnDataType_t, int, int *);
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t, cudnnTensorFormat_t, cudnnDataType_t, int, int, int, int);
cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t, cudnnDataType_t, int, int, int, int, int, int, int, int);
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t, cudnnDataType_t, int, int *, int *);
cudnnStatus_t cudnnSetTensorNdDescriptorEx(cudnnTensorDescriptor_t, cudnnTensorFormat_t, cudnnDataType_t, int, int *);
cudnnStatus_t cudnnSetTensorTransformDescriptor(cudnnTensorTransformDescriptor_t, uint32_t, cudnnTensorFormat_t, int32_t *, int32_t *, uint32_t *, cudnnFoldingDirection_t);
cudnnStatus_t cudnnSoftmaxBackward(cudnnHandle_t, cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t, void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t, cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnSpatialTfGridGeneratorBackward(cudnnHandle_t, cudnnSpatialTransformerDescriptor_t, void *, void *);
cudnnStatus_t cudnnSpatialTfGridGeneratorForward(cudnnHandle_t, cudnnSpatialTransformerDescriptor_t, void *, void *);
cudnnStatus_t cudnnSpatialTfSamplerBackward(cudnnHandle_t, cudnnSpatialTransformerDescriptor_t, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *, void *, void *, void *);
cudnnStatus_t cudnnSpatialTfSamplerForward(cudnnHandle_t, cudnnSpatialTransformerDescriptor_t, void *, cudnnTensorDescriptor_t, void *, void *, void *, cudnnTensorDescriptor_t, void *);
cudnnStatus_t cudnnTransformTensor(cudnnHandle_t, void *, cudnnTensorDescriptor_t, void *, void *, cudnnTensorDescriptor_t, void *);

/* What only the C code of gorgonia.org/cu/dnn calls. */
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *);
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t, cudnnMathType_t);
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t, int);
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t, int, int, int, int, int, int, cudnnConvolutionMode_t, cudnnDataType_t);
cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t, int, const int *, const int *, const int *, cudnnConvolutionMode_t, cudnnDataType_t);

#endif
