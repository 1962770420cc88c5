// Package gpu is the part of package cudaop that the packages of this module alone use: the
// limits of its kernels, the memory that it holds and the benchmark of its kernels.
package gpu

import (
	"fmt"
	"sync/atomic"

	"github.com/pulsecol/pulsecol/internal/exec"
)

// Limits of the attention kernels.
const (
	MaxLen     = 131072 // tokens
	MaxHeadDim = 256
)

// BF16Dims are the head dimensions that have attention kernels for bfloat16.
var BF16Dims = []int{64, 128}

// CheckHeadDim returns an error that wraps op.ErrShape for heads that the attention kernels
// do not take.
func CheckHeadDim(d int) error {
	if d < 1 || d > MaxHeadDim {
		return fmt.Errorf("%w: head dimension %d, the GPU kernels take 1 to %d", exec.ErrShape, d, MaxHeadDim)
	}
	return nil
}

var held atomic.Int64

// AddHeld notes that the operators of a machine take so many bytes more of GPU memory.
func AddHeld(bytes int64) { held.Add(bytes) }

// Held returns the bytes of GPU memory that the operators of all machines hold.
func Held() int64 { return held.Load() }
