package exec

import (
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// preloader keeps the types that it is made with.
type preloader struct {
	gorgonia.Op
	types []gorgonia.TensorType
}

func (preloader) Preload(types []gorgonia.TensorType) gorgonia.Op { return preloader{types: types} }

// TestPreload: the tensors among a graph's inputs are preloaded, ids first, and nothing else
// of the graph.
func TestPreload(t *testing.T) {
	g := gorgonia.NewGraph()
	tensorOf := func(of tensor.Dtype, name string, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, of, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...))
	}
	positions := tensorOf(tensor.Int32, "positions", 2, 3)
	ids := tensorOf(tensor.Int32, "ids", 2, 3)
	mask := tensorOf(tensor.Float32, "mask", 2, 3)
	gorgonia.NewScalar(g, tensor.Float32, gorgonia.WithName("scalar"))
	gorgonia.NewConstant(tensor.New(tensor.WithBacking([]float32{1, 2})), gorgonia.WithName("constant"))
	gorgonia.GaussianRandomNode(g, tensor.Float32, 0, 1, 2, 3)
	gorgonia.Must(gorgonia.Neg(mask))
	rows := tensorOf(tensor.Int32, "rows", 4)

	o, inputs := Preload(preloader{}, ids)
	if want := []*gorgonia.Node{ids, positions, mask, rows}; !slices.Equal(inputs, want) {
		t.Errorf("inputs are %v, want %v", inputs, want)
	}
	want := []gorgonia.TensorType{{Dims: 2, Of: tensor.Int32}, {Dims: 2, Of: tensor.Float32}, {Dims: 1, Of: tensor.Int32}}
	if got := o.(preloader).types; !slices.Equal(got, want) {
		t.Errorf("types are %v, want %v", got, want)
	}
}
