package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/op"
)

// maxLen is the longest sequence of the attention kernels.
const maxLen = 131072

// bf16Dims are the head dimensions that have attention kernels for bfloat16, and
// exactDims those that the kernels for float32 come in, which take smaller ones too.
var (
	bf16Dims  = []int{64, 128}
	exactDims = []int{64, 128, maxHeadDim}
)

const maxHeadDim = 256

// checkHeadDim returns an error for heads that the attention kernels do not take.
func checkHeadDim(d int) error {
	if d < 1 || d > maxHeadDim {
		return fmt.Errorf("%w: head dimension %d, the GPU kernels take 1 to %d", op.ErrShape, d, maxHeadDim)
	}
	return nil
}
