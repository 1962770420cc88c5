// Package attncase is the table of attention cases: the shapes, group sizes, masks and
// values on which the tests of the kernels, of the operators, of the GPU's operators and
// of the CUDA kernels compare attention with the reference.
//
// A consumer takes the cases that it can run and states why it leaves others out. The
// harness of the CUDA kernels reads them from cudaop/kernels/harness/cases.h, which
// CHeader writes.
package attncase

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/kernel"
)

// Case is a shape with a group size.
type Case struct {
	Name string
	kernel.Shape
	Group    int
	Sparsity float64 // of the columns that a refresh selects; 0: every key
	Padding  Padding // nil: none
}

func (c Case) String() string {
	return fmt.Sprintf("%s,b%d,h%d/%d,n%d,d%d,g%d", c.Name, c.Batch, c.Heads, c.KVHeads, c.Len, c.HeadDim, c.Group)
}

// Cost is the number of multiply-adds of q kᵀ. The reference on the CPU takes about
// 10 ns for each.
func (c Case) Cost() int { return c.Batch * c.Heads * c.Len * c.Len * c.HeadDim }

// TensorCores reports whether GPUs have kernels for the head dimension other than those
// in float32.
func (c Case) TensorCores() bool { return c.HeadDim == 64 || c.HeadDim == 128 }

func shape(batch, kvHeads, ratio, n, dim int) kernel.Shape {
	return kernel.Shape{Batch: batch, Heads: kvHeads * ratio, KVHeads: kvHeads, Len: n, HeadDim: dim}
}

// Cases are lengths of 1 and 2 and around the tiles of all kernels (32 queries and 128
// keys on the CPU; 64 and 128 of both on GPUs), grouped queries up to a ratio of 7,
// groups of 1, of several tiles and larger than the sequence, head dimensions from 1 to
// 256, and paddings.
var Cases = []Case{
	{"one query", shape(1, 1, 1, 1, 4), 32, 0.5, nil},
	{"one query, one feature", shape(1, 1, 1, 1, 1), 32, 0.5, nil},
	{"one query, 64 features", shape(1, 1, 1, 1, 64), 32, 0.5, nil},
	{"two queries", shape(1, 1, 1, 2, 8), 32, 0.5, nil},
	{"groups of one, odd head dim", shape(1, 1, 1, 2, 3), 1, 0.5, nil},
	{"group larger than n", shape(1, 2, 1, 5, 16), 32, 0.5, nil},
	{"one less than a group", shape(1, 1, 2, 31, 32), 32, 0.5, nil},
	{"small groups", shape(2, 2, 1, 31, 8), 8, 0.7, nil},
	{"head dim 128", shape(1, 2, 1, 31, 128), 16, 0.5, nil},
	{"one group", shape(2, 1, 1, 32, 64), 32, 0.5, nil},
	{"one group, grouped heads", shape(1, 2, 2, 32, 16), 32, 0.8, nil},
	{"one more than a group", shape(1, 1, 7, 33, 16), 32, 0.9, nil},
	{"batch of three", shape(3, 1, 2, 33, 5), 16, 0.9, nil},
	{"one more than a group, 64 features", shape(2, 1, 2, 33, 64), 32, 0.8, nil},
	{"batch, head dim 128", shape(2, 2, 1, 33, 128), 32, 0.6, nil},
	{"groups of one", shape(1, 1, 1, 37, 12), 1, 0.5, nil},
	{"head dim 80", shape(2, 2, 2, 40, 80), 32, 0.6, nil},
	{"odd head dim", shape(1, 2, 1, 45, 5), 7, 0.5, nil},
	{"one key each", shape(1, 1, 7, 65, 8), 64, 0.99, nil},
	{"one more than a tile of a GPU", shape(1, 1, 2, 65, 7), 33, 0.6, nil},
	{"groups across panels", shape(1, 1, 2, 70, 80), 5, 0.5, nil},
	{"seven heads for one", shape(2, 1, 7, 70, 16), 16, 0.8, nil},
	{"head dim 256, every key", shape(1, 1, 2, 90, 256), 300, 0, nil},
	{"head dim 24", shape(2, 1, 2, 97, 24), 32, 0.6, nil},
	{"seven heads, head dim 128", shape(1, 1, 7, 97, 128), 32, 0.6, nil},
	{"one group, 192 features", shape(1, 1, 1, 100, 192), 100, 0.5, nil},
	{"group of twice the length", shape(2, 2, 2, 100, 32), 200, 0.5, nil},
	{"one group, every key", shape(1, 2, 1, 100, 128), 300, 0, nil},
	{"one less than a tile", shape(1, 1, 1, 127, 16), 64, 0.5, nil},
	{"one tile", shape(1, 1, 1, 128, 128), 16, 0.5, nil},
	{"one more than a tile", shape(1, 1, 1, 129, 32), 32, 0.5, nil},
	{"one more than a tile, head dim 80", shape(1, 2, 1, 129, 80), 64, 0.9, nil},
	{"one more than a tile, seven heads", shape(1, 1, 7, 129, 128), 64, 0.9, nil}, // Dream's ratio
	{"keep all but nothing", shape(1, 2, 1, 130, 16), 7, 1e-17, nil},
	{"group of everything", shape(1, 1, 1, 140, 8), 1 << 30, 0.5, nil},
	{"batch, grouped heads", shape(2, 2, 2, 150, 64), 32, 0.6, nil},
	{"batch, seven heads", shape(2, 1, 7, 150, 64), 32, 0.6, nil},
	{"one less than three tiles of a GPU", shape(2, 2, 2, 191, 128), 48, 0.7, nil},
	{"one more than three tiles of a GPU", shape(1, 2, 1, 193, 128), 32, 0.6, nil},
	{"two keys each", shape(1, 2, 1, 200, 64), 128, 0.99, nil},
	{"two key blocks", shape(1, 1, 2, 257, 8), 32, 0.5, nil},
	{"group of several tiles", shape(1, 1, 1, 300, 8), 150, 0.5, nil},

	{"left padding", shape(2, 1, 1, 129, 32), 32, 0.5, Left},
	{"left padding, 64 features", shape(2, 1, 2, 90, 64), 16, 0.6, Left},
	{"left padding, seven heads", shape(2, 1, 7, 150, 128), 64, 0.6, Left},
	{"left padding, head dim 24", shape(2, 1, 2, 97, 24), 32, 0.6, Left},
	{"a group of padding alone", shape(2, 1, 2, 70, 16), 8, 0.5, Left},
	{"scattered padding", shape(2, 1, 2, 50, 20), 16, 0.5, Scattered},
	{"scattered padding, two key blocks", shape(1, 1, 1, 390, 4), 32, 0.5, Scattered},
	{"row of padding", shape(2, 2, 1, 40, 16), 16, 0.5, FirstRow},
}

// Padding says which positions of a batch row are padding.
type Padding func(batch, i, n int) bool

// Left is what models have: prompts of different lengths end together. The padding of
// the first row is a fifth of it, of the second two fifths.
func Left(batch, i, n int) bool { return i < (batch+1)*n/5 }

// Scattered makes every third position padding.
func Scattered(batch, i, n int) bool { return (i+batch)%3 == 1 }

// FirstRow leaves the first batch row without a valid key.
func FirstRow(batch, i, n int) bool { return batch == 0 }

// Apply sets the mask of operands.
func (p Padding) Apply(a *kernel.Operands) {
	if p == nil {
		return
	}
	a.Valid = make([]float32, a.Batch*a.Len)
	for b := range a.Batch {
		for i := range a.Len {
			if !p(b, i, a.Len) {
				a.Valid[b*a.Len+i] = 1
			}
		}
	}
}

// LeftOnly reports whether all padding of the case is on the left and each batch row has
// a valid key: what a controller and GPUs take.
func (c Case) LeftOnly() bool {
	if c.Padding == nil {
		return true
	}
	for b := range c.Batch {
		if c.Padding(b, c.Len-1, c.Len) {
			return false
		}
		for i := 1; i < c.Len; i++ {
			if c.Padding(b, i, c.Len) && !c.Padding(b, i-1, c.Len) {
				return false
			}
		}
	}
	return true
}
