//go:build cuda

package cudaop_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// limit is the largest relative error of a result of the given precision, whose exact value is
// want: bfloat16's, or twice that of a plain loop in float32 plus that of its exponential.
func limit(p op.Precision, bfloat16 float64, plain []float32, want []float64) float64 {
	if p == op.Float32 {
		return 2*tol.RelL2(plain, want) + 1e-6
	}
	return bfloat16
}

func needGPU(t testing.TB) {
	t.Helper()
	if err := cudaop.Available(); err != nil {
		t.Skip(err)
	}
}

// onBoth runs a test with the GPU's own kernels, and with those for any GPU, from PTX.
func onBoth(t *testing.T, f func(t *testing.T)) {
	needGPU(t)
	t.Run("own", f)
	t.Run("sm80", func(t *testing.T) {
		cudaop.ForceSM80(true)
		defer cudaop.ForceSM80(false)
		f(t)
	})
}

func name(s kernel.Shape, group int) string {
	return fmt.Sprintf("b%d,h%d/%d,n%d,d%d,g%d", s.Batch, s.Heads, s.KVHeads, s.Len, s.HeadDim, group)
}

// operands returns random inputs that are exact in bfloat16.
func operands(seed uint64, s kernel.Shape) *kernel.Operands {
	return operandsOf(op.BFloat16, seed, s)
}

// operandsOf returns random inputs that are exact in the given precision.
func operandsOf(p op.Precision, seed uint64, s kernel.Shape) *kernel.Operands {
	a := attncase.Operands(rand.New(rand.NewPCG(seed, 0)), s, 1)
	if p == op.BFloat16 {
		for _, x := range [][]float32{a.Q, a.K, a.V} {
			for i := range x {
				x[i] = bf16.ToFloat32(bf16.FromFloat32(x[i]))
			}
		}
	}
	return a
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func input(g *gorgonia.ExprGraph, name string, data any, shape ...int) *gorgonia.Node {
	value := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
	return gorgonia.NewTensor(g, value.Dtype(), len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithValue(value))
}

// inputs adds q, k and v to a graph, with names of the layer.
func inputs(g *gorgonia.ExprGraph, layer string, a *kernel.Operands) (q, k, v *gorgonia.Node) {
	q = input(g, layer+".q", slices.Clone(a.Q), a.Batch, a.Heads, a.Len, a.HeadDim)
	k = input(g, layer+".k", slices.Clone(a.K), a.Batch, a.KVHeads, a.Len, a.HeadDim)
	v = input(g, layer+".v", slices.Clone(a.V), a.Batch, a.KVHeads, a.Len, a.HeadDim)
	return q, k, v
}

// both adds an operator and its CUDA implementation on the same inputs.
func both(t testing.TB, p op.Precision, o gorgonia.Op, in ...*gorgonia.Node) (cpu, gpu *gorgonia.Node) {
	t.Helper()
	cpu = must(op.Apply(o, in...))(t)
	gpu = must(op.Apply(must(cudaop.Wrap(o, p))(t), in...))(t)
	if cpu == gpu {
		t.Fatalf("%v and its CUDA implementation are one node", o)
	}
	return cpu, gpu
}

// read makes the machine copy a result into the returned value.
func read(n *gorgonia.Node) *gorgonia.Value {
	v := new(gorgonia.Value)
	gorgonia.Read(n, v)
	return v
}

func floats(v *gorgonia.Value) []float32 { return (*v).Data().([]float32) }

// machine compiles g and closes the machine with the test.
func machine(t testing.TB, g *gorgonia.ExprGraph) gorgonia.VM {
	t.Helper()
	vm := must(cudaop.NewTapeMachine(g))(t)
	t.Cleanup(func() {
		if err := cudaop.Close(vm); err != nil {
			t.Error(err)
		}
	})
	return vm
}

// run runs the machine a few times, as a program would.
func run(t testing.TB, vm gorgonia.VM) {
	t.Helper()
	for range 3 {
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		vm.Reset()
	}
}

// rounded is a value rounded as between operators of a precision.
func rounded(p pulsecol.Precision, x float32) float32 {
	if p == pulsecol.BFloat16 {
		return bf16.ToFloat32(bf16.FromFloat32(x))
	}
	return x
}

// The largest relative L2 errors of attention from bfloat16 inputs: its output is
// computed from probabilities rounded to 8 bits, and scores are within 1e-3.
const (
	outputError = 3e-3
	scoreError  = 1e-3
)
