package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/op"
)

// maxLen is the longest sequence of the attention kernels.
const maxLen = 131072

// checkHeadDim returns an error for heads that the attention kernels do not take.
func checkHeadDim(d int) error {
	if d != 64 && d != 128 {
		return fmt.Errorf("%w: head dimension %d, the GPU kernels take 64 and 128", op.ErrShape, d)
	}
	return nil
}
