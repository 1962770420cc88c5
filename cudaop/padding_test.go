//go:build cuda

package cudaop_test

import (
	"errors"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
)

// TestPadding: the padding of layers is that of the step's masks, with one mask for several
// layers and with a mask for each.
func TestPadding(t *testing.T) {
	needGPU(t)
	const group, sparsity = 16, 0.6
	s := kernel.Shape{Batch: 2, Heads: 2, KVHeads: 1, Len: 90, HeadDim: 64}
	mask, other := make([]float32, s.Batch*s.Len), make([]float32, s.Batch*s.Len)
	var layers []*kernel.Operands
	for i, valid := range [][]float32{mask, other, mask, mask, other} {
		a := operands(16+uint64(i), s)
		a.Valid = valid
		layers = append(layers, a)
	}
	r := newRig(t, pulsecol.Config{Sparsity: sparsity, GroupSize: group, Schedule: pulsecol.Uniform{Refreshes: 1}}, layers...)
	set := func(valid []float32, padding ...int) {
		for b, p := range padding {
			row := valid[b*s.Len : (b+1)*s.Len]
			clear(row[:p])
			for j := p; j < s.Len; j++ {
				row[j] = 1
			}
		}
		copy(r.masks[&valid[0]], valid)
	}
	full := func() {
		t.Helper()
		for i, y := range r.steps(t) {
			want, _ := ref.Attention[float64](layers[i], nil)
			tol.Close(t, real(layers[i], y), real(layers[i], want), outputError)
		}
	}
	refresh := func() {
		t.Helper()
		full()
		for i, a := range layers {
			overlap(t, a, r.table(t, i), group, sparsity)
		}
	}
	r.start(t, 5)
	set(mask, 5, 40)
	set(other, 33, 0)
	refresh()
	set(mask, 0, 12)
	set(other, 50, 7)
	r.ctl.SetDense(true)
	full()
	r.ctl.SetDense(false)
	r.ctl.Invalidate()
	r.masks[&mask[0]][2*s.Len-1] = 0 // padding on the right
	if err := r.m.Step(); !errors.Is(err, op.ErrValue) {
		t.Fatalf("padding on the right: %v", err)
	}
	set(mask, 0, 12)
	refresh()
	set(mask, 21, 3)
	r.ctl.Invalidate()
	refresh()
}
