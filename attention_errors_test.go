package pulsecol_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestAttentionErrors: a bad argument is an error that names the layer. It adds no node to
// the graph, and the layer can be used in another call.
func TestAttentionErrors(t *testing.T) {
	a := attncase.Seeded(17, kernel.Shape{Batch: 1, Heads: 4, KVHeads: 2, Len: 8, HeadDim: 2})
	g := gorgonia.NewGraph()
	ctl := newController(t, pulsecol.Config{Sparsity: 0.5, GroupSize: 4})
	q, k, v, _ := qkv(g, a)
	attncase.PadLeft(a, 1)
	foreign, _, _, foreignMask := qkv(gorgonia.NewGraph(), a)
	node := func(name string, dtype tensor.Dtype, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
	}
	shapeless := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithName("shapeless"))
	var into gorgonia.Value
	statement := gorgonia.Read(q, &into)
	for name, c := range map[string]struct {
		q, k, v, mask *gorgonia.Node
		want          string
	}{
		"nil q":            {nil, k, v, nil, "must not be nil"},
		"nil k":            {q, nil, v, nil, "must not be nil"},
		"nil v":            {q, k, nil, nil, "must not be nil"},
		"q of rank 3":      {node("q3", tensor.Float32, 4, 8, 2), k, v, nil, "q is float32 of shape (4, 8, 2), want float32 [B H N D]"},
		"q without shape":  {shapeless, k, v, nil, "q is float32 of shape (), want float32 [B H N D]"},
		"k without shape":  {q, shapeless, v, nil, "want float32 [B Hkv N D]"},
		"q is a statement": {statement, k, v, nil, "q is a statement, which has no value, want float32 [B H N D]"},
		"k of rank 3":      {q, node("k3", tensor.Float32, 2, 8, 2), v, nil, "k is float32 of shape (2, 8, 2), want float32 [B Hkv N D]"},
		"other length":     {node("q7", tensor.Float32, 1, 4, 7, 2), k, v, nil, "may differ in their heads only"},
		"3 heads":          {node("qh3", tensor.Float32, 1, 3, 8, 2), k, v, nil, "not a multiple"},
		"float64":          {node("q64", tensor.Float64, 1, 4, 8, 2), k, v, nil, "q is float64 of shape (1, 4, 8, 2), want float32 [B H N D]"},
		"v is a scalar":    {q, k, gorgonia.NewScalar(g, tensor.Float32, gorgonia.WithName("s")), nil, "v is a scalar float32, want float32 [B Hkv N D]"},
		"two graphs":       {foreign, k, v, nil, "k is of a graph other than q's"},
		"v of a graph":     {q, k, foreign, nil, "v is of a graph other than q's"},
		"mask of a graph":  {q, k, v, foreignMask, "the padding mask is of a graph other than q's"},
		"mask shape":       {q, k, v, node("m", tensor.Float32, 8, 1), "padding mask (8, 1), want [1 8]"},
		"mask rank":        {q, k, v, node("m1", tensor.Float32, 8), "the padding mask is float32 of shape (8), want float32 [B N]"},
		"mask dtype":       {q, k, v, node("mi", tensor.Int32, 1, 8), "the padding mask is int32 of shape (1, 8), want float32 [B N]"},
	} {
		before := len(g.AllNodes())
		var opts []pulsecol.AttentionOption
		if c.mask != nil {
			opts = append(opts, pulsecol.WithPaddingMask(c.mask))
		}
		y, err := pulsecol.Attention(c.q, c.k, c.v, ctl.Layer(0), opts...)
		first, _, _ := strings.Cut(fmt.Sprint(err), "\n")
		if !errors.Is(err, op.ErrShape) || y != nil || !strings.Contains(first, c.want) || !strings.Contains(first, "pulsecol.layers.0.attention") || strings.Contains(first, "[columns") {
			t.Errorf("%s: got %v, %v; want ErrShape, first with %q and the layer's path", name, y, err, c.want)
		}
		if got := len(g.AllNodes()); got != before {
			t.Errorf("%s: %d nodes were left in the graph", name, got-before)
		}
	}
	otherRows, _, _, _ := qkv(gorgonia.NewGraph(), a)
	otherRows = gorgonia.NewVector(otherRows.Graph(), tensor.Int32, gorgonia.WithShape(2), gorgonia.WithName("rows"))
	for want, rows := range map[string]*gorgonia.Node{
		"rows are float32 of shape (2), want int32 [R]":  node("rows32", tensor.Float32, 2),
		"rows are int32 of shape (1, 2), want int32 [R]": node("rows2", tensor.Int32, 1, 2),
		"rows are of a graph other than q's":             otherRows,
	} {
		before := len(g.AllNodes())
		y, err := pulsecol.Attention(q, k, v, ctl.Layer(0), pulsecol.WithRows(rows))
		if !errors.Is(err, op.ErrShape) || y != nil || !strings.Contains(err.Error(), "pulsecol.layers.0.attention: wrong shape: "+want) {
			t.Errorf("got %v, %v; want ErrShape with %q and the layer's path", y, err, want)
		}
		if got := len(g.AllNodes()); got != before {
			t.Errorf("%s: %d nodes were left in the graph", want, got-before)
		}
	}
	for _, l := range []*pulsecol.Layer{nil, new(pulsecol.Layer), ctl.Layer(-1), ctl.Layer(1 << 16)} {
		if _, err := pulsecol.Attention(q, k, v, l); err == nil || !strings.Contains(err.Error(), "the layer is nil, or not one of Controller.Layer(i), 0 <= i < 65536") {
			t.Errorf("got %v", err)
		}
	}
	y := must(pulsecol.Attention(q, k, v, ctl.Layer(0)))(t)
	if fmt.Sprint(y.Shape()) != fmt.Sprint(q.Shape()) {
		t.Errorf("result %v, want %v", y.Shape(), q.Shape())
	}
	if _, err := pulsecol.Attention(y, k, v, ctl.Layer(0)); err == nil || !strings.Contains(err.Error(), "pulsecol.layers.0.attention already has its attention") {
		t.Errorf("a layer used twice: %v", err)
	}
}
