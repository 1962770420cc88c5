package exec

import (
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestDescribe: errors name a node of any kind.
func TestDescribe(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewTensor(g, tensor.Int32, 2, gorgonia.WithShape(3, 4), gorgonia.WithName("x"))
	for want, n := range map[string]*gorgonia.Node{
		"nil":                             nil,
		"int32 of shape (3, 4)":           x,
		"a scalar float32":                gorgonia.NewScalar(g, tensor.Float32, gorgonia.WithName("s")),
		"a statement, which has no value": gorgonia.Read(x, new(gorgonia.Value)),
	} {
		if got := Describe(n); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
