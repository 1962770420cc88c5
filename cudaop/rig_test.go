//go:build cuda

package cudaop_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"gorgonia.org/gorgonia"
)

// rig is attention layers under a controller.
type rig struct {
	ctl     *pulsecol.Controller
	g       *gorgonia.ExprGraph
	m       *pulsecol.Machine
	queries [][]float32            // of each layer, for the next step
	masks   map[*float32][]float32 // likewise, by where Valid of the operands lies
	outs    []func() []float32
}

// newRig returns a layer for each of the operands, on the GPU unless cfg says where.
// Operands with one Valid have one padding mask.
func newRig(t testing.TB, cfg pulsecol.Config, layers ...*kernel.Operands) *rig {
	t.Helper()
	if cfg.Device == pulsecol.Auto {
		cfg.Device = pulsecol.CUDA
	}
	g := gorgonia.NewGraph()
	r := &rig{ctl: must(pulsecol.NewController(cfg))(t), g: g, masks: map[*float32][]float32{}}
	masks := map[*float32]*gorgonia.Node{}
	for i, a := range layers {
		layer := fmt.Sprint("layer", i)
		q, k, v := inputs(g, layer, a)
		r.queries = append(r.queries, q.Value().Data().([]float32))
		var opts []pulsecol.AttentionOption
		if a.Valid != nil {
			at := &a.Valid[0]
			if masks[at] == nil {
				r.masks[at] = slices.Clone(a.Valid)
				masks[at] = input(g, layer+".mask", r.masks[at], a.Batch, a.Len)
			}
			opts = append(opts, pulsecol.WithPaddingMask(masks[at]))
		}
		y := must(pulsecol.Attention(q, k, v, r.ctl.Layer(i), opts...))(t)
		if cfg.Device == pulsecol.CUDA {
			copied := read(y)
			r.outs = append(r.outs, func() []float32 { return floats(copied) })
		} else { // a graph on the CPU has no Read, see op.Check
			r.outs = append(r.outs, func() []float32 { return y.Value().Data().([]float32) })
		}
	}
	r.m = must(pulsecol.NewMachine(g, r.ctl))(t)
	t.Cleanup(func() {
		if err := errors.Join(r.m.Close(), r.ctl.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) start(t testing.TB, steps int) {
	t.Helper()
	if err := r.ctl.Start(steps); err != nil {
		t.Fatal(err)
	}
}

// step runs a step and returns the first layer's output.
func (r *rig) step(t testing.TB) []float32 { return r.steps(t)[0] }

// steps runs a step and returns all layers' outputs.
func (r *rig) steps(t testing.TB) (outs [][]float32) {
	t.Helper()
	if err := r.m.Step(); err != nil {
		t.Fatal(err)
	}
	for _, out := range r.outs {
		outs = append(outs, slices.Clone(out()))
	}
	return outs
}

func (r *rig) table(t testing.TB, layer int) *kernel.Table {
	t.Helper()
	c := must(r.ctl.Columns(layer))(t)
	return &kernel.Table{Bits: c.Bits, Group: c.Group, Reach: -1}
}

// real drops the output of padding queries, which is undefined.
func real[F tol.Float](a *kernel.Operands, y []F) []F {
	if a.Valid == nil {
		return y
	}
	var out []F
	for i, row := 0, 0; i < len(y); i, row = i+a.HeadDim, row+1 {
		b, n := row/(a.Heads*a.Len), row%a.Len
		if a.Valid[b*a.Len+n] != 0 {
			out = append(out, y[i:i+a.HeadDim]...)
		}
	}
	return out
}

// overlap checks that a table keeps the right number of real keys, and all but a
// few of those with the highest exact scores: scores are held to 0.07 %, so near
// the last kept key the order may differ.
func overlap(t *testing.T, a *kernel.Operands, table *kernel.Table, group int, sparsity float64) {
	t.Helper()
	scores := ref.Scores[float64](a, group, 0)
	rows, w := len(scores)/a.Len, kernel.Words(a.Len)
	worst := 0.0
	for r := range rows {
		b, last := r/(rows/a.Batch), min((r%kernel.Groups(a.Len, group)+1)*group, a.Len)-1
		if a.Valid != nil && a.Valid[b*a.Len+last] == 0 { // a group of padding
			continue
		}
		var valid []float32
		keys := a.Len
		if a.Valid != nil {
			valid, keys = a.Valid[b*a.Len:(b+1)*a.Len], 0
			for _, v := range valid {
				keys += int(v)
			}
		}
		k := exec.Selection{Sparsity: sparsity}.Keep(keys)
		row := make([]float32, a.Len)
		for j := range row {
			row[j] = float32(scores[r*a.Len+j])
		}
		var got []int
		for j := range a.Len {
			if table.Bits[r*w+j/32]>>(j%32)&1 != 0 {
				got = append(got, j)
			}
		}
		if len(got) != k {
			t.Fatalf("row %d keeps %d keys, want %d", r, len(got), k)
		}
		lowest, want := math.Inf(1), math.Inf(1)
		for _, j := range got {
			lowest = min(lowest, scores[r*a.Len+j])
		}
		for _, j := range ref.TopK(row, valid, k) {
			want = min(want, scores[r*a.Len+j])
		}
		if want > 0 {
			worst = max(worst, 1-lowest/want)
		}
	}
	if worst > 4*scoreError {
		t.Errorf("a kept key scores %.2g below the last that should be kept", worst)
	}
}
