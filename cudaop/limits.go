//go:build cuda

package cudaop

import "github.com/pulsecol/pulsecol/internal/gpu"

// exactDims are the head dimensions that the attention kernels for float32 come in. Each
// takes smaller ones too.
var exactDims = []int{64, 128, gpu.MaxHeadDim}
