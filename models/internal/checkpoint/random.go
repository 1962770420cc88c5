package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/jsonfile"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/internal/workgroup"
	"github.com/pulsecol/pulsecol/models"
)

// RandomFiles returns the files of a model with a config.json and random weights: normally
// distributed, with the initial standard deviation of LLaDA's and Dream's training, and
// ones in the norms. context above 0 replaces that of the configuration.
//
// Tensors are windows at different offsets of one block of random bfloat16 that is little
// larger than the largest tensor. So 8 billion weights take the host memory of half a
// billion; a GPU holds all 8 billion.
func RandomFiles(config []byte, context int, seed uint64) (*Files, error) {
	if context < 0 {
		return nil, fmt.Errorf("%w: a context of %d tokens, want at least 0", models.ErrRequest, context)
	}
	return &Files{
		Config: jsonfile.File{Name: "config.json", Text: config}, Context: context, random: &randomWeights{seed: seed},
	}, nil
}

const (
	// maxRandom is above the tensors of any model: 8 GiB.
	maxRandom = 1 << 32
	// initStd is LLaDA's init_std and Dream's initializer_range.
	initStd = 0.02
	// randomShift is the elements by which the block is larger than a tensor.
	randomShift = 1 << 22
	// randomStride is the distance between the offsets of two tensors: an odd number of
	// cache lines, so that an offset recurs only after 65,536 tensors.
	randomStride = 2027 * 64
)

// randomWeights hands out windows of a block of random numbers.
type randomWeights struct {
	seed  uint64
	block []byte // bfloat16
	at    int    // element where the next tensor begins
	bytes int64  // of all tensors, if each had memory of its own
}

// fill makes the block, for tensors of at most so many elements.
func (r *randomWeights) fill(largest int64) error {
	if most := min(int64(maxRandom), math.MaxInt/4); largest > most {
		return fmt.Errorf("%w: a tensor of %d elements, want at most %d of random weights", models.ErrConfig, largest, most)
	}
	r.block = normals(int(largest)+randomShift, initStd, r.seed)
	return nil
}

// tensor returns the next tensor.
func (r *randomWeights) tensor(name string, shape []int) safetensors.Tensor {
	from, n := r.at, 1
	for _, d := range shape {
		n *= d
	}
	r.at = (r.at + randomStride) % randomShift
	r.bytes += 2 * int64(n)
	return safetensors.Tensor{
		Info: safetensors.Info{Name: name, DType: quant.BF16, Shape: shape}, Data: r.block[2*from : 2*(from+n) : 2*(from+n)],
	}
}

// normals returns n normally distributed numbers as bfloat16. Equal seeds give
// equal numbers on any number of threads.
func normals(n int, std float64, seed uint64) []byte {
	// The 65,536 quantiles that 16 random bits select from.
	var quantiles [1 << 16]uint16
	for i := range quantiles {
		x := math.Sqrt2 * math.Erfinv((2*float64(i)+1)/float64(len(quantiles))-1)
		quantiles[i] = bf16.FromFloat32(float32(std * x))
	}
	const part = 1 << 20 // elements, a multiple of 4
	data := make([]byte, 2*n+6)
	var wg workgroup.Group
	for i := 0; i*part < n; i++ {
		wg.Go(func() {
			rng := rand.NewPCG(seed, uint64(i))
			for at := i * part; at < min(n, (i+1)*part); at += 4 {
				bits := rng.Uint64()
				four := uint64(quantiles[bits&0xFFFF]) | uint64(quantiles[bits>>16&0xFFFF])<<16 |
					uint64(quantiles[bits>>32&0xFFFF])<<32 | uint64(quantiles[bits>>48])<<48
				binary.LittleEndian.PutUint64(data[2*at:], four)
			}
		})
	}
	wg.Wait()
	return data[:2*n]
}
