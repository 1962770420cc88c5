//go:build !cuda

package exec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestOrderIsMachines: Gorgonia's tape machine runs operators in the planned order, also
// with its own operators between them. In the cuda build these are of the GPU, and
// Gorgonia's Close can wait for ever (see cudaop.Close).
func TestOrderIsMachines(t *testing.T) {
	shape := tensor.Shape{1, 4, 4}
	reshaped := func(x *gorgonia.Node, reduce func(x *gorgonia.Node, along ...int) (*gorgonia.Node, error)) (*gorgonia.Node, error) {
		x, err := gorgonia.Reshape(x, tensor.Shape{1, 4, 4, 1})
		if err != nil {
			return nil, err
		}
		if reduce == nil {
			return gorgonia.Reshape(x, shape)
		}
		return reduce(x, 3)
	}
	foreign := []func(x *gorgonia.Node) (*gorgonia.Node, error){
		func(x *gorgonia.Node) (*gorgonia.Node, error) { return reshaped(x, gorgonia.Sum) },
		func(x *gorgonia.Node) (*gorgonia.Node, error) { return reshaped(x, gorgonia.Mean) },
		func(x *gorgonia.Node) (*gorgonia.Node, error) { return reshaped(x, nil) },
		func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Transpose(x, 0, 2, 1) },
	}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		b := newBuilder(t)
		x := gorgonia.NewTensor(b.g, tensor.Float32, 3, gorgonia.WithShape(shape...), gorgonia.WithName("x"),
			gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(make([]float32, 16)))))
		nodes, fakes := []*gorgonia.Node{x}, []*fake{}
		var order []int
		for i := range 4 + r.IntN(12) {
			in := nodes[r.IntN(len(nodes))]
			if r.IntN(3) == 0 {
				nodes = append(nodes, b.must(foreign[r.IntN(len(foreign))](in)))
				continue
			}
			f := &fake{name: fmt.Sprint("f", i)}
			f.ran = func(f *fake) {
				if _, err := f.at.Start(Dense); err != nil {
					t.Errorf("seed %d: %v: %v", seed, f, err)
				}
				order = append(order, f.at.index)
			}
			fakes = append(fakes, f)
			nodes = append(nodes, b.add(f, in, nodes[r.IntN(len(nodes))]))
		}
		b.plan(Options{})
		vm := gorgonia.NewTapeMachine(b.g)
		for range 2 {
			order = nil
			if err := vm.RunAll(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			vm.Reset()
			if len(order) != len(fakes) || !slices.IsSorted(order) {
				t.Errorf("seed %d: ran %v of %d operators", seed, order, len(fakes))
			}
		}
		vm.Close()
	}
}
