package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Measurement is the time of one kernel, or of the kernels of a refresh, on random
// inputs: batch 1, bfloat16, no padding, a random set of keys for each group, the same in all heads.
type Measurement struct {
	Kernel   string  `json:"kernel"` // "dense", "scores", "topk", "refresh" (the three) or "columnsparse"
	N        int     `json:"n"`
	Heads    int     `json:"heads"`
	KVHeads  int     `json:"kv_heads"`
	HeadDim  int     `json:"head_dim"`
	Group    int     `json:"group,omitempty"` // 0 for dense attention
	Sparsity float64 `json:"sparsity"`
	Samples  int     `json:"samples"` // that the median is of
	MS       float64 `json:"ms"`      // median

	// TFLOPS counts useful operations: 4 Heads N keys HeadDim for attention with
	// the keys that are kept, 2 Heads N N HeadDim for scores; 0 for the others.
	TFLOPS float64 `json:"tflops,omitempty"`
}

// MeasureOptions say what to measure. A nil slice means the default in brackets.
type MeasureOptions struct {
	Kernels    []string  // [all]
	Lens       []int     // [4096, 16384]
	Heads      int       // [32]
	KVHeads    int       // [Heads]
	HeadDims   []int     // [128]
	Groups     []int     // [128, 64, 32]
	Sparsities []float64 // [0.8, 0.9]
	Samples    int       // [15]
}

// measured lists the kernels in the order they are measured.
var measured = []string{"dense", "scores", "topk", "refresh", "columnsparse"}

func (o *MeasureOptions) defaults() {
	if o.Kernels == nil {
		o.Kernels = measured
	}
	if o.Lens == nil {
		o.Lens = []int{4096, 16384}
	}
	if o.Heads == 0 {
		o.Heads = 32
	}
	if o.KVHeads == 0 {
		o.KVHeads = o.Heads
	}
	if o.HeadDims == nil {
		o.HeadDims = []int{128}
	}
	if o.Groups == nil {
		o.Groups = []int{128, 64, 32}
	}
	if o.Sparsities == nil {
		o.Sparsities = []float64{0.8, 0.9}
	}
	if o.Samples == 0 {
		o.Samples = 15
	}
}

func (o *MeasureOptions) check() error {
	if o.Heads < 1 || o.KVHeads < 1 || o.Heads%o.KVHeads != 0 {
		return fmt.Errorf("gpu: %d heads on %d key heads, want a positive multiple", o.Heads, o.KVHeads)
	}
	for _, k := range o.Kernels {
		if !slices.Contains(measured, k) {
			return fmt.Errorf("gpu: kernel %q is not one of %s", k, strings.Join(measured, ", "))
		}
	}
	if o.Samples < 1 {
		return fmt.Errorf("gpu: %d samples, want at least 1", o.Samples)
	}
	for _, n := range o.Lens {
		if n < 1 || n > MaxLen {
			return fmt.Errorf("gpu: %d tokens, want 1 to %d", n, MaxLen)
		}
	}
	for _, g := range o.Groups {
		if g < 1 {
			return fmt.Errorf("gpu: groups of %d queries, want at least 1", g)
		}
	}
	for _, d := range o.HeadDims {
		if !slices.Contains(BF16Dims, d) {
			return fmt.Errorf("gpu: head dimension %d, the kernels for bfloat16 take %v", d, BF16Dims)
		}
	}
	for _, s := range o.Sparsities {
		if !(s >= 0 && s < 1) {
			return fmt.Errorf("gpu: sparsity %v, want 0 <= sparsity < 1", s)
		}
	}
	return nil
}

var measure func(MeasureOptions, func(Measurement) error) error

// RegisterMeasure makes f the implementation of Measure. Package cudaop calls it.
func RegisterMeasure(f func(MeasureOptions, func(Measurement) error) error) { measure = f }

// Measure times the kernels on the first GPU and passes each row to report as soon as it is
// measured. A program without package cudaop, or built without -tags cuda, has no kernels.
func Measure(o MeasureOptions, report func(Measurement) error) error {
	o.defaults()
	if err := o.check(); err != nil {
		return err
	}
	if measure == nil {
		return errors.New("gpu: the program was built without -tags cuda")
	}
	return measure(o, report)
}
