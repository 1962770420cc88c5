//go:build cuda

package cudaop_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestMemory: after a thousand steps with ten refreshes a machine holds as much memory as after
// ten steps.
func TestMemory(t *testing.T) {
	needGPU(t)
	a := operands(5, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 256, HeadDim: 64})
	r := newRig(t, pulsecol.Config{Sparsity: 0.8, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 10}}, a)
	steps, early := 1000, int64(0)
	if testing.Short() {
		steps = 100
	}
	r.start(t, steps)
	for i := range steps {
		r.step(t)
		if i == 9 {
			early = gpu.Held()
		}
	}
	if late := gpu.Held(); late != early || early == 0 {
		t.Errorf("%d bytes held after %d steps, %d after 10", late, steps, early)
	}
}

// TestGorgoniaOperators: our attention between matrix products of Gorgonia's own, in
// one graph. The last operator is ours: it waits for the product before it, which
// runs in another context, and Gorgonia's copy to the host does not.
func TestGorgoniaOperators(t *testing.T) {
	needGPU(t)
	const n, d = 96, 64
	r := rand.New(rand.NewPCG(6, 0))
	random := func() []float32 {
		x := make([]float32, n*d)
		for i := range x {
			x[i] = float32(r.NormFloat64()) / 8
		}
		return x
	}
	x, w1, w2 := random(), random()[:d*d], random()[:d*d]
	build := func() (*gorgonia.ExprGraph, *gorgonia.Value) {
		g := gorgonia.NewGraph()
		h := must(gorgonia.Mul(input(g, "x", slices.Clone(x), n, d), input(g, "w1", slices.Clone(w1), d, d)))(t)
		q := must(gorgonia.Reshape(h, tensor.Shape{1, 1, n, d}))(t)
		o := must(cudaop.Wrap(must(op.NewDenseAttn("attention", 0, false))(t), op.AutoPrecision))(t)
		y := must(gorgonia.Reshape(must(op.Apply(o, q, q, q))(t), tensor.Shape{n, d}))(t)
		z := must(gorgonia.Reshape(must(gorgonia.Mul(y, input(g, "w2", slices.Clone(w2), d, d)))(t), tensor.Shape{1, n, d}))(t)
		add := must(cudaop.Wrap(op.NewAdd("twice"), op.AutoPrecision))(t)
		return g, read(must(op.Apply(add, z, z))(t))
	}
	g, got := build()
	run(t, machine(t, g))

	a := &kernel.Operands{Shape: kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: n, HeadDim: d}, Scale: 1 / float32(math.Sqrt(d))}
	a.Q = product(x, w1, n, d)
	a.K, a.V = a.Q, a.Q
	attended, _ := ref.Attention[float32](a, nil)
	// The products round nothing to bfloat16; attention and the sum round their inputs.
	want := product(attended, w2, n, d)
	for i := range want {
		want[i] *= 2
	}
	tol.Close(t, floats(got), want, 3*outputError)
}

// product is x w for x [n,d], w [d,d].
func product(x, w []float32, n, d int) []float32 {
	y := make([]float32, n*d)
	for i := range n {
		for k := range d {
			for j := range d {
				y[i*d+j] += x[i*d+k] * w[k*d+j]
			}
		}
	}
	return y
}

// TestClose: machines, used or not, can be closed concurrently and repeatedly, and leave no
// memory on the GPU.
func TestClose(t *testing.T) {
	needGPU(t)
	a := operands(7, kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 40, HeadDim: 64})
	for i := range 20 {
		g := gorgonia.NewGraph()
		q, k, v := inputs(g, "layer", a)
		o := must(cudaop.Wrap(must(op.NewDenseAttn("attention", 0, false))(t), op.AutoPrecision))(t)
		read(must(op.Apply(o, q, k, v))(t))
		vm := must(cudaop.NewTapeMachine(g))(t)
		if i%2 == 0 {
			run(t, vm)
		}
		if err := cudaop.Close(vm); err != nil {
			t.Fatal(err)
		}
		if held := gpu.Held(); held != 0 {
			t.Fatalf("%d bytes held after Close", held)
		}
	}
}

// TestDevice: with a GPU, Auto selects it for attention that it supports, and AutoPrecision is
// the GPU's.
func TestDevice(t *testing.T) {
	needGPU(t)
	for _, c := range []struct {
		cfg       pulsecol.Config
		headDim   int
		device    pulsecol.Device
		precision pulsecol.Precision
	}{
		{pulsecol.Config{}, 128, pulsecol.CUDA, pulsecol.BFloat16},
		{pulsecol.Config{Pattern: pulsecol.Streaming{}, Precision: pulsecol.Float32}, 16, pulsecol.CUDA, pulsecol.Float32},
		{pulsecol.Config{}, 257, pulsecol.CPU, pulsecol.Float32},
		{pulsecol.Config{Precision: pulsecol.Int16}, 128, pulsecol.CPU, pulsecol.Int16},
		{pulsecol.Config{Precision: pulsecol.Int8}, 128, pulsecol.CPU, pulsecol.Int8},
		{pulsecol.Config{Schedule: pulsecol.Adaptive{}}, 128, pulsecol.CPU, pulsecol.Float32},
	} {
		ctl := must(pulsecol.NewController(c.cfg))(t)
		if d, p := ctl.DeviceFor(c.headDim), ctl.PrecisionFor(c.headDim); d != c.device || p != c.precision {
			t.Errorf("%+v, heads of %d: %v and %v, want %v and %v", c.cfg, c.headDim, d, p, c.device, c.precision)
		}
	}
	if err := (pulsecol.Config{Device: pulsecol.CUDA, Precision: pulsecol.Int16}).Validate(); !errors.Is(err, pulsecol.ErrConfig) {
		t.Errorf("int16 on the GPU: %v", err)
	}
}

// TestErrors: an unsupported operation is an error that names it, if possible when the graph is
// built.
func TestErrors(t *testing.T) {
	needGPU(t)
	for what, p := range map[string]op.AttentionParams{
		"blocks without a State":      {Selection: op.Selection{Kind: op.SelectBlocks, Block: 8}},
		"a score scale without State": {Selection: op.Selection{ScoreScale: 1}},
		"padding without a State":     {Masked: true},
	} {
		if _, err := cudaop.Wrap(must(op.NewScoreCollect("x", p))(t), op.AutoPrecision); !errors.Is(err, op.ErrValue) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := cudaop.Wrap(op.NewAdd("x"), op.Int16); !errors.Is(err, op.ErrValue) {
		t.Errorf("int16: %v", err)
	}
	g := gorgonia.NewGraph()
	q, k, v := inputs(g, "layer", operands(8, kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 4, HeadDim: 257}))
	o := must(cudaop.Wrap(must(op.NewDenseAttn("dim257", 0, false))(t), op.AutoPrecision))(t)
	if _, err := op.Apply(o, q, k, v); !errors.Is(err, op.ErrShape) {
		t.Errorf("head dimension 257: %v", err)
	}
	a := operands(9, kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 64, HeadDim: 64})
	a.Valid = slices.Repeat([]float32{1}, 64)
	a.Valid[63] = 0 // padding on the right
	r := newRig(t, pulsecol.Config{Sparsity: 0.5}, a)
	r.start(t, 1)
	if err := r.m.Step(); !errors.Is(err, op.ErrValue) {
		t.Errorf("padding on the right: %v", err)
	}
}

// TestSideBySide: several machines of a program run and close at the same time.
func TestSideBySide(t *testing.T) {
	needGPU(t)
	a := operands(11, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 65, HeadDim: 64})
	want, _ := ref.Attention[float64](a, nil)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				g := gorgonia.NewGraph()
				q, k, v := inputs(g, "layer", a)
				o, err := op.NewDenseAttn("attention", 0, false)
				if err != nil {
					t.Error(err)
					return
				}
				device, err := cudaop.Wrap(o, op.AutoPrecision)
				if err != nil {
					t.Error(err)
					return
				}
				y, err := op.Apply(device, q, k, v)
				if err != nil {
					t.Error(err)
					return
				}
				got := read(y)
				vm, err := cudaop.NewTapeMachine(g)
				if err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					if err := vm.RunAll(); err != nil {
						t.Error(err)
					}
					vm.Reset()
				}
				if off := tol.RelL2(floats(got), want); off > outputError {
					t.Errorf("relative error %.2g", off)
				}
				if err := cudaop.Close(vm); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
