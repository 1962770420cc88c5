//go:build cuda

package cudaop_test

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The largest relative L2 errors of attention from bfloat16 inputs: its output is
// computed from probabilities rounded to 8 bits, and scores are within 1e-3.
const (
	outputError = 3e-3
	scoreError  = 1e-3
)

// limit is the largest relative error of a result of the given precision, whose
// exact value is want: bfloat16's, or twice that of a plain loop in float32, and what
// its exponential costs.
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

// onBoth runs a test with the kernels that the GPU gets, and with those for any
// GPU, from PTX.
func onBoth(t *testing.T, f func(t *testing.T)) {
	needGPU(t)
	t.Run("own", f)
	t.Run("portable", func(t *testing.T) {
		cudaop.SetPortable(true)
		defer cudaop.SetPortable(false)
		f(t)
	})
}

// layers are lengths around the tiles of the kernels, both head dimensions, groups
// that have a kernel of their own and groups that have not.
var layers = []struct {
	kernel.Shape
	group    int
	sparsity float64
}{
	{kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 1, HeadDim: 64}, 32, 0.5},
	{kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 31, HeadDim: 128}, 16, 0.5},
	{kernel.Shape{Batch: 2, Heads: 2, KVHeads: 1, Len: 33, HeadDim: 64}, 32, 0.8},
	{kernel.Shape{Batch: 1, Heads: 7, KVHeads: 1, Len: 129, HeadDim: 128}, 64, 0.9}, // Dream's ratio
	{kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 200, HeadDim: 64}, 128, 0.99},
	{kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 191, HeadDim: 128}, 48, 0.7},
	{kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 100, HeadDim: 128}, 300, 0}, // one group, every key
}

// otherDims are layers with head dimensions that only the kernels for float32 take.
var otherDims = []struct {
	kernel.Shape
	group    int
	sparsity float64
}{
	{kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 1, HeadDim: 1}, 32, 0.5},
	{kernel.Shape{Batch: 2, Heads: 7, KVHeads: 1, Len: 70, HeadDim: 16}, 16, 0.8},
	{kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 65, HeadDim: 7}, 33, 0.6},
	{kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 129, HeadDim: 80}, 64, 0.9},
	{kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 100, HeadDim: 192}, 100, 0.5},
	{kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 90, HeadDim: 256}, 300, 0}, // one group, every key
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
	r := rand.New(rand.NewPCG(seed, 0))
	normal := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
			if p == op.BFloat16 {
				x[i] = bf16.ToFloat32(bf16.FromFloat32(x[i]))
			}
		}
		return x
	}
	return &kernel.Operands{
		Shape: s, Scale: float32(1 / math.Sqrt(float64(s.HeadDim))),
		Q: normal(s.Batch * s.Heads * s.Len * s.HeadDim),
		K: normal(s.Batch * s.KVHeads * s.Len * s.HeadDim),
		V: normal(s.Batch * s.KVHeads * s.Len * s.HeadDim),
	}
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

// inputs adds q, k and v to a graph, which knows them by a name for the layer.
func inputs(g *gorgonia.ExprGraph, layer string, a *kernel.Operands) (q, k, v *gorgonia.Node) {
	q = input(g, layer+".q", slices.Clone(a.Q), a.Batch, a.Heads, a.Len, a.HeadDim)
	k = input(g, layer+".k", slices.Clone(a.K), a.Batch, a.KVHeads, a.Len, a.HeadDim)
	v = input(g, layer+".v", slices.Clone(a.V), a.Batch, a.KVHeads, a.Len, a.HeadDim)
	return q, k, v
}

// both adds an operator and its twin on the same inputs.
func both(t testing.TB, p op.Precision, o gorgonia.Op, in ...*gorgonia.Node) (cpu, gpu *gorgonia.Node) {
	t.Helper()
	cpu = must(op.Apply(o, in...))(t)
	gpu = must(op.Apply(must(cudaop.Wrap(o, p))(t), in...))(t)
	if cpu == gpu {
		t.Fatalf("%v and its twin are one node", o)
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

// TestPureOperators: operators without a State, on values of the machine, beside
// the same operators on the CPU in one graph.
func TestPureOperators(t *testing.T) { onBoth(t, testPureOperators) }

func testPureOperators(t *testing.T) {
	g := gorgonia.NewGraph() // one for all: a machine takes longer to make than to run
	var checks []func()
	for _, p := range []op.Precision{op.BFloat16, op.Float32} {
		shapes := slices.Concat(layers, otherDims)
		if cudaop.Portable() { // what has no kernels for Hopper is the same
			if p == op.Float32 {
				continue
			}
			shapes = layers
		}
		for _, s := range shapes {
			path := fmt.Sprintf("%v,%s", p, name(s.Shape, s.group))
			check := pureOperators(t, g, path, p, s.Shape, op.AttentionParams{Group: s.group, Selection: op.Selection{Sparsity: s.sparsity}})
			checks = append(checks, func() { t.Run(path, check) })
		}
	}
	run(t, machine(t, g))
	for _, check := range checks {
		check()
	}
}

// pureOperators adds a layer's operators and their twins to a graph, and returns the
// test of what a run of it gives.
func pureOperators(t *testing.T, g *gorgonia.ExprGraph, path string, precision op.Precision, s kernel.Shape, p op.AttentionParams) func(t *testing.T) {
	a := operandsOf(precision, 1, s)
	q, k, v := inputs(g, path, a)
	_, gpuDense := both(t, precision, must(op.NewDenseAttn(path+".dense", 0, false))(t), q, k, v)
	cpuScores, gpuScores := both(t, precision, must(op.NewScoreCollect(path+".scores", p))(t), q, k, v)
	cpuColumns, gpuColumns := both(t, precision, must(op.NewGroupTopK(path+".topk", s.Len, p))(t), cpuScores)
	_, gpuSparse := both(t, precision, must(op.NewColumnSparseAttn(path+".sparse", p))(t), q, k, v, cpuColumns)
	y, scores, columns, sparse := read(gpuDense), read(gpuScores), read(gpuColumns), read(gpuSparse)
	wantColumns := read(cpuColumns)
	return func(t *testing.T) {
		want, _ := ref.Attention[float64](a, nil)
		plain, _ := ref.Attention[float32](a, nil)
		tol.Close(t, floats(y), want, limit(precision, outputError, plain, want))
		want = ref.Scores[float64](a, p.Group, 0)
		tol.Close(t, floats(scores), want, limit(precision, scoreError, ref.Scores[float32](a, p.Group, 0), want))
		got, keep := (*columns).Data().([]uint32), (*wantColumns).Data().([]uint32)
		if !slices.Equal(got, keep) {
			t.Error("columns of the same scores differ")
		}
		table := &kernel.Table{Bits: keep, Group: p.Group, Reach: -1}
		want, _ = ref.Attention[float64](a, table)
		plain, _ = ref.Attention[float32](a, table)
		tol.Close(t, floats(sparse), want, limit(precision, outputError, plain, want))
	}
}

// TestTopKTies: equal scores go to the smaller key, exactly as on the CPU.
func TestTopKTies(t *testing.T) { onBoth(t, testTopKTies) }

func testTopKTies(t *testing.T) {
	const n, group = 1000, 100
	r := rand.New(rand.NewPCG(2, 0))
	g := gorgonia.NewGraph()
	type pair struct{ cpu, gpu *gorgonia.Value }
	columns := map[string]pair{}
	for kind, draw := range map[string]func() float32{
		"equal":  func() float32 { return 0.25 },
		"zero":   func() float32 { return 0 },
		"two":    func() float32 { return float32(r.IntN(2)) },
		"tiny":   func() float32 { return math.Float32frombits(uint32(r.IntN(5))) },
		"random": func() float32 { return r.Float32() },
	} {
		scores := make([]float32, 2*(n/group)*n)
		for i := range scores {
			scores[i] = draw()
		}
		in := input(g, kind, scores, 1, 2, n/group, n)
		p := op.AttentionParams{Group: group, Selection: op.Selection{Sparsity: 0.83}}
		cpu, gpu := both(t, op.AutoPrecision, must(op.NewGroupTopK(kind, n, p))(t), in)
		columns[kind] = pair{read(cpu), read(gpu)}
	}
	run(t, machine(t, g))
	for kind, c := range columns {
		if !slices.Equal((*c.gpu).Data().([]uint32), (*c.cpu).Data().([]uint32)) {
			t.Errorf("%s scores: columns differ", kind)
		}
	}
}

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

// TestLayer: refresh, reuse, dense and refresh again under a controller, with and
// without padding.
func TestLayer(t *testing.T) { onBoth(t, testLayer) }

func testLayer(t *testing.T) {
	for _, s := range layers {
		for _, padded := range []bool{false, true} {
			if padded && s.Len < 16 {
				continue
			}
			t.Run(fmt.Sprintf("%s,padded=%v", name(s.Shape, s.group), padded), func(t *testing.T) {
				a := operands(3, s.Shape)
				if padded {
					a.Valid = make([]float32, s.Batch*s.Len)
					for b := range s.Batch {
						for i := 5 * (b + 1); i < s.Len; i++ {
							a.Valid[b*s.Len+i] = 1
						}
					}
				}
				r := newRig(t, pulsecol.Config{Sparsity: max(s.sparsity, 0.01), GroupSize: s.group, Schedule: pulsecol.Uniform{Refreshes: 1}}, a)
				r.start(t, 5)
				full, _ := ref.Attention[float64](a, nil)
				tol.Close(t, real(a, r.step(t)), real(a, full), outputError)
				table := r.table(t, 0)
				overlap(t, a, table, s.group, max(s.sparsity, 0.01))

				sparse, _ := ref.Attention[float64](a, table)
				for range 2 {
					tol.Close(t, real(a, r.step(t)), real(a, sparse), outputError)
				}
				r.ctl.SetDense(true)
				tol.Close(t, real(a, r.step(t)), real(a, full), outputError)
				r.ctl.SetDense(false)
				tol.Close(t, real(a, r.step(t)), real(a, sparse), outputError)

				st := r.ctl.Stats().Layers[0]
				if st.Refreshes != 1 || st.Bytes != 4*int64(len(table.Bits)) || st.Density <= 0 || st.Density > 1 {
					t.Errorf("stats %+v", st)
				}
				r.start(t, 1) // a new generation refreshes
				r.step(t)
				if !slices.Equal(r.table(t, 0).Bits, table.Bits) {
					t.Error("a second refresh on the same inputs made other columns")
				}
			})
		}
	}
}

// TestRows: where rows are wanted, attention gives these the bits that it gives them
// among all, whatever the rows of the step.
func TestRows(t *testing.T) { onBoth(t, testRows) }

func testRows(t *testing.T) {
	for _, precision := range []pulsecol.Precision{pulsecol.BFloat16, pulsecol.Float32} {
		for _, pattern := range []pulsecol.Pattern{pulsecol.Columns{}, pulsecol.Streaming{Width: 50}} {
			for _, group := range []int{16, 32, 64, 128, 48} {
				if group != 32 && (precision == pulsecol.Float32 || pattern != pulsecol.Columns{}) {
					continue // has no kernel of its own
				}
				t.Run(fmt.Sprintf("%v,%v,g%d", precision, pattern, group), func(t *testing.T) { rowsWanted(t, precision, pattern, group) })
			}
		}
	}
}

func rowsWanted(t *testing.T, precision pulsecol.Precision, pattern pulsecol.Pattern, group int) {
	s := kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 700, HeadDim: 128}
	n := int32(s.Len)
	ctl := must(pulsecol.NewController(pulsecol.Config{
		Sparsity: 0.8, GroupSize: group, Pattern: pattern, Precision: precision, Device: pulsecol.CUDA, Schedule: pulsecol.Uniform{Window: 1, Refreshes: 2},
	}))(t)
	g := gorgonia.NewGraph()
	q, k, v := inputs(g, "layer", operands(31, s))
	rows := input(g, "rows", make([]int32, 3), 3)
	all := read(must(pulsecol.Attention(q, k, v, ctl.Layer(0)))(t))
	some := read(must(pulsecol.Attention(q, k, v, ctl.Layer(1), pulsecol.WithRows(rows)))(t))
	m := must(pulsecol.NewMachine(g, ctl))(t)
	defer func() {
		if err := errors.Join(m.Close(), ctl.Close()); err != nil {
			t.Error(err)
		}
	}()
	wanted := [][]int32{{0, -1, -1}, {n - 1, 2*n - 1, -1}, {-1, n + 270, 275}, {-1, -1, -1}, {0, 2*n - 1, 40}, {n, n, n}, {n + 127, 128, -1}, {511, n + 512, 300}}
	modes := map[pulsecol.Mode]bool{}
	for _, off := range []bool{false, true} {
		ctl.SetDense(off)
		if err := ctl.Start(len(wanted)); err != nil {
			t.Fatal(err)
		}
		for step, want := range wanted {
			if err := gorgonia.Let(rows, tensor.New(tensor.WithShape(3), tensor.WithBacking(slices.Clone(want)))); err != nil {
				t.Fatal(err)
			}
			if err := m.Step(); err != nil {
				t.Fatal(err)
			}
			modes[ctl.LastMode()] = true
			for _, row := range want {
				if row < 0 {
					continue
				}
				for h := range s.Heads {
					at := ((int(row/n)*s.Heads+h)*s.Len + int(row%n)) * s.HeadDim
					if !slices.Equal(floats(some)[at:at+s.HeadDim], floats(all)[at:at+s.HeadDim]) {
						t.Fatalf("step %d (%v): row %d, head %d is not what it is among all", step+1, ctl.LastMode(), row, h)
					}
				}
			}
		}
	}
	if !modes[pulsecol.Dense] || !modes[pulsecol.Reuse] {
		t.Errorf("modes %v", modes)
	}
}

// TestStats: what a refresh counts is what the columns say, whenever one asks.
func TestStats(t *testing.T) {
	needGPU(t)
	layers := []*kernel.Operands{
		operands(14, kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 191, HeadDim: 64}),
		operands(15, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 70, HeadDim: 128}),
	}
	layers[0].Valid = slices.Repeat([]float32{1}, 2*191)
	clear(layers[0].Valid[191:230])
	type last struct {
		table          *pulsecol.ColumnTable
		density, churn float64
	}
	prepare := func(t *testing.T) (r *rig, refresh func(), check func(refreshes int)) {
		r = newRig(t, pulsecol.Config{Sparsity: 0.7, GroupSize: 48, Schedule: pulsecol.Uniform{Refreshes: 1}}, layers...)
		r.start(t, 9)
		latest, seed := make([]last, len(layers)), uint64(100)
		refresh = func() { // on other queries than before
			t.Helper()
			for i, a := range layers {
				seed++
				copy(r.queries[i], operands(seed, a.Shape).Q)
			}
			again := r.ctl.Mode() == pulsecol.Reuse
			r.ctl.Invalidate()
			r.step(t)
			for i := range latest {
				now := must(r.ctl.Columns(i))(t)
				density, churn := shares(now, latest[i].table)
				if !again { // nothing to replace
					churn = 0
				} else if churn < 0.01 {
					t.Fatalf("layer %d: churn %v; the queries are too much alike", i, churn)
				}
				latest[i] = last{now, density, churn}
			}
		}
		check = func(refreshes int) {
			t.Helper()
			for i, got := range r.ctl.Stats().Layers {
				want := latest[i]
				if got.Refreshes != refreshes || math.Abs(got.Density-want.density) > 1e-12 || math.Abs(got.Churn-want.churn) > 1e-12 {
					t.Errorf("layer %d: %+v, want %d refreshes, density %v and churn %v", i, got, refreshes, want.density, want.churn)
				}
			}
		}
		return r, refresh, check
	}
	t.Run("steps", func(t *testing.T) {
		r, refresh, check := prepare(t)
		refresh()
		check(1)
		refresh()
		refresh() // the one before is never asked about
		check(3)
		check(3)
		r.step(t) // a reuse
		check(3)
		refresh()
		r.start(t, 2) // drops the tables
		check(4)
		refresh()
		check(5)
	})
	t.Run("machine closed first", func(t *testing.T) {
		r, refresh, check := prepare(t)
		refresh()
		refresh()
		if err := r.m.Close(); err != nil {
			t.Fatal(err)
		}
		check(2)
		if err := r.ctl.Close(); err != nil {
			t.Fatal(err)
		}
		check(2)
	})
	t.Run("controller closed first", func(t *testing.T) {
		r, refresh, check := prepare(t)
		refresh()
		refresh()
		if err := r.ctl.Close(); err != nil {
			t.Fatal(err)
		}
		check(2)
		if bytes := r.ctl.Stats().Layers[0].Bytes; bytes != 0 {
			t.Errorf("%d bytes of a table that is gone", bytes)
		}
	})
	t.Run("another machine", func(t *testing.T) {
		r, refresh, check := prepare(t)
		refresh()
		refresh()
		if err := r.m.Close(); err != nil {
			t.Fatal(err)
		}
		r.m = must(pulsecol.NewMachine(r.g, r.ctl))(t)
		check(2)
		r.start(t, 2) // the tables are gone with the other machine
		refresh()
		check(3)
		refresh()
		check(4)
	})
}

// shares are the share of query-key pairs that a column table keeps, and the share of
// these that the one before did not; nil is an empty table.
func shares(now, before *pulsecol.ColumnTable) (density, churn float64) {
	words := kernel.Words(now.Len)
	kept, added := 0, 0
	for i, word := range now.Bits {
		u := i / words % now.Groups()
		queries := min(now.Group, now.Len-u*now.Group)
		kept += queries * bits.OnesCount32(word)
		if before != nil {
			word &^= before.Bits[i]
		}
		added += queries * bits.OnesCount32(word)
	}
	return float64(kept) / (float64(now.Batch*now.Heads) * float64(now.Len) * float64(now.Len)), float64(added) / float64(kept)
}

// TestPadding: layers have padding where the masks of this step say, one mask for
// several layers or not.
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
	r.masks[&mask[0]][2*s.Len-1] = 0 // padding behind
	if err := r.m.Step(); !errors.Is(err, op.ErrValue) {
		t.Fatalf("padding behind: %v", err)
	}
	set(mask, 0, 12)
	refresh()
	set(mask, 21, 3)
	r.ctl.Invalidate()
	refresh()
}

// TestRisingScores: scores that grow along the keys, by more than a float32 weight
// holds if the first keys weigh about 1.
func TestRisingScores(t *testing.T) { onBoth(t, testRisingScores) }

func testRisingScores(t *testing.T) {
	for _, dim := range []int{64, 128} {
		for _, group := range []int{16, 32, 64, 128, 48} {
			s := kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 700, HeadDim: dim}
			t.Run(name(s, group), func(t *testing.T) {
				a := operands(11, s)
				for i := range a.Q {
					a.Q[i] *= 4
				}
				for i := range a.K {
					rise := 1 + 10*float32(i/dim)/float32(s.Len)
					a.K[i] = bf16.ToFloat32(bf16.FromFloat32(a.K[i] * rise))
				}
				r := newRig(t, pulsecol.Config{Sparsity: 0.5, GroupSize: group, Schedule: pulsecol.Uniform{Refreshes: 1}}, a)
				r.start(t, 3)
				full, _ := ref.Attention[float64](a, nil)
				tol.Close(t, r.step(t), full, outputError)
				sparse, _ := ref.Attention[float64](a, r.table(t, 0))
				tol.Close(t, r.step(t), sparse, outputError)
			})
		}
	}
}

// TestFixed: every step is on the table that was given, for some or all batch rows and
// heads, without the keys that are padding in the step.
func TestFixed(t *testing.T) { onBoth(t, testFixed) }

func testFixed(t *testing.T) {
	s := kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 300, HeadDim: 64}
	for _, c := range []struct {
		batch, heads, group int
		precision           pulsecol.Precision
	}{
		{1, 1, 32, pulsecol.BFloat16}, {1, 4, 16, pulsecol.BFloat16}, {2, 1, 48, pulsecol.BFloat16}, {2, 4, 128, pulsecol.BFloat16},
		{1, 1, 400, pulsecol.BFloat16}, {1, 4, 32, pulsecol.Float32}, {2, 1, 32, pulsecol.Float32},
	} {
		for _, padded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%dx%d,g%d,%v,padded=%v", c.batch, c.heads, c.group, c.precision, padded), func(t *testing.T) {
				a := operands(8, s)
				pad := func(rows ...int) {
					for i := range a.Valid {
						a.Valid[i] = 0
						if i%s.Len >= rows[i/s.Len] {
							a.Valid[i] = 1
						}
					}
				}
				if padded {
					a.Valid = make([]float32, s.Batch*s.Len)
					pad(0, 33)
				}
				r := rand.New(rand.NewPCG(9, 0))
				given := must(pulsecol.NewColumnTable(c.batch, c.heads, s.Len, c.group, func(_, _, u int) (keys []int) {
					if u == 0 {
						return []int{3, 17, 32} // all of them padding in one row
					}
					for range 70 {
						keys = append(keys, r.IntN(s.Len))
					}
					return keys
				}))(t)
				table := &kernel.Table{Bits: given.Bits, Group: c.group, Reach: -1, SharedBatch: c.batch == 1, SharedHeads: c.heads == 1}
				layer := newRig(t, pulsecol.Config{Precision: c.precision, Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{given}}}, a, a)
				check := func(table *kernel.Table) {
					t.Helper()
					want, _ := ref.Attention[float64](a, table)
					for _, y := range layer.steps(t) {
						tol.Close(t, real(a, y), real(a, want), outputError)
					}
				}
				for range 2 { // the second generation finds the table in place
					layer.start(t, 5)
					check(table)
					check(table)
					if padded { // other padding, in other rows
						pad(40, 2)
						for _, mask := range layer.masks {
							copy(mask, a.Valid)
						}
						check(table)
					}
					layer.ctl.SetDense(true)
					check(nil)
					layer.ctl.SetDense(false)
					check(table)
				}
				for i := range 2 {
					if got := must(layer.ctl.Columns(i))(t); !slices.Equal(got.Bits, given.Bits) || got.Batch != c.batch || got.Heads != c.heads {
						t.Errorf("layer %d: the table is not the one that was given", i)
					}
				}
				if st := layer.ctl.Stats(); st.Refreshes != 0 || st.Layers[0].Refreshes != 0 || st.Layers[0].Bytes == 0 {
					t.Errorf("stats %+v", st)
				}
			})
		}
	}
}

// real drops the output of padding queries, which means nothing.
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
		k := op.Selection{Sparsity: sparsity}.Keep(keys)
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

// TestPatterns: every pattern, in both precisions, beside the same layer on the CPU:
// refresh, reuse and full attention, with and without padding.
func TestPatterns(t *testing.T) { onBoth(t, testPatterns) }

func testPatterns(t *testing.T) {
	for _, pattern := range []pulsecol.Pattern{
		pulsecol.Columns{},
		pulsecol.Blocks{Size: 13},
		pulsecol.Blocks{}, // as many keys as queries
		pulsecol.SparseD{BlockSize: 32, Generation: 40},
		pulsecol.SparseD{BlockSize: 16, Generation: 1000, ScoreScale: 0.05}, // no prompt
		pulsecol.SlidingWindow{Width: 20},
		pulsecol.Streaming{Width: 20, SinkFraction: 0.4},
		pulsecol.Streaming{Width: 1000, SinkFraction: 1}, // every key
	} {
		for _, precision := range []pulsecol.Precision{pulsecol.BFloat16, pulsecol.Float32} {
			if cudaop.Portable() && precision == pulsecol.Float32 {
				continue
			}
			t.Run(fmt.Sprintf("%v,%v", pattern, precision), func(t *testing.T) { testPattern(t, pattern, precision) })
		}
	}
}

func testPattern(t *testing.T, pattern pulsecol.Pattern, precision pulsecol.Precision) {
	var layers []*kernel.Operands
	for _, s := range []kernel.Shape{ // batches get padding
		{Batch: 1, Heads: 1, KVHeads: 1, Len: 1, HeadDim: 64},
		{Batch: 2, Heads: 7, KVHeads: 1, Len: 150, HeadDim: 64},
		{Batch: 1, Heads: 2, KVHeads: 2, Len: 193, HeadDim: 128},
		{Batch: 2, Heads: 2, KVHeads: 1, Len: 97, HeadDim: 24},
	} {
		a := operandsOf(precision, 12, s)
		if s.Batch > 1 {
			a.Valid = make([]float32, s.Batch*s.Len)
			for b := range s.Batch {
				for i := 17 * (b + 1); i < s.Len; i++ {
					a.Valid[b*s.Len+i] = 1
				}
			}
		}
		layers = append(layers, a)
	}
	cfg := pulsecol.Config{Sparsity: 0.6, Pattern: pattern, Schedule: pulsecol.Uniform{Refreshes: 1}, Precision: precision}
	gpu := newRig(t, cfg, layers...)
	cfg.Device, cfg.Precision = pulsecol.CPU, pulsecol.Float32 // the inputs are exact in either
	cpu := newRig(t, cfg, layers...)
	gpu.start(t, 3)
	cpu.start(t, 3)
	first, want := gpu.steps(t), cpu.steps(t)
	second := gpu.steps(t)
	gpu.ctl.SetDense(true)
	full := gpu.steps(t)
	for i, a := range layers {
		t.Run(name(a.Shape, 32), func(t *testing.T) {
			close := func(got []float32, table *kernel.Table) {
				t.Helper()
				exact, _ := ref.Attention[float64](a, table)
				plain, _ := ref.Attention[float32](a, table)
				tol.Close(t, real(a, got), real(a, exact), limit(precision, outputError, real(a, plain), real(a, exact)))
			}
			table := gpu.table(t, i)
			switch pattern.(type) {
			case pulsecol.SlidingWindow, pulsecol.Streaming:
				table = cpu.static(t, i)
				close(first[i], table)
			default:
				sameColumns(t, a, precision, pattern, table, cpu.table(t, i))
				close(first[i], nil)
			}
			close(second[i], table)
			close(full[i], nil)
			tol.Close(t, real(a, first[i]), real(a, want[i]), 2*outputError) // the same layer, whatever ref says
			d, w := gpu.ctl.Stats().Layers[i].Density, cpu.ctl.Stats().Layers[i].Density
			if a.Valid == nil && math.Abs(d-w) > 0.01*w {
				t.Errorf("density %v, on the CPU %v", d, w)
			}
		})
	}
}

// static is the table of a pattern fixed by position, exact for each query.
func (r *rig) static(t testing.TB, layer int) *kernel.Table {
	t.Helper()
	table := r.table(t, layer)
	table.SharedBatch, table.SharedHeads = true, true
	n := must(r.ctl.Columns(layer))(t).Len
	switch p := r.ctl.Config().Pattern.(type) {
	case pulsecol.SlidingWindow:
		table.Reach = p.Width / 2
	case pulsecol.Streaming:
		table.Reach, table.Sinks = p.Width/2, int(math.Ceil(p.SinkFraction*float64(n)))
	}
	return table
}

// sameColumns compares a table with that of the CPU. Sums and scores are not the same
// to the last bit, so that a key may be kept in place of another with almost its
// score. What groups of padding keep means nothing.
func sameColumns(t *testing.T, a *kernel.Operands, precision pulsecol.Precision, pattern pulsecol.Pattern, got, want *kernel.Table) {
	t.Helper()
	if _, columns := pattern.(pulsecol.Columns); columns && precision == pulsecol.BFloat16 {
		overlap(t, a, got, got.Group, 0.6)
		return
	}
	if len(got.Bits) != len(want.Bits) {
		t.Fatalf("a table of %d words, want %d", len(got.Bits), len(want.Bits))
	}
	words, groups, differ, few := kernel.Words(a.Len), kernel.Groups(a.Len, got.Group), 0, max(1, len(want.Bits)/50)
	if precision == pulsecol.Float32 {
		few = len(want.Bits) / 500
	}
	for i := range want.Bits {
		b, last := i/(a.Heads*groups*words), min((i/words%groups+1)*got.Group, a.Len)-1
		if got.Bits[i] != want.Bits[i] && (a.Valid == nil || a.Valid[b*a.Len+last] != 0) {
			differ++
		}
	}
	if differ > few {
		t.Errorf("%d of %d words of the tables differ", differ, len(want.Bits))
	}
}

// TestScoreParts: the scores of some heads at a time give the columns of all at once.
func TestScoreParts(t *testing.T) {
	needGPU(t)
	a := operands(13, kernel.Shape{Batch: 2, Heads: 6, KVHeads: 2, Len: 100, HeadDim: 64})
	a.Valid = slices.Repeat([]float32{1}, 2*100)
	clear(a.Valid[:9])
	for _, pattern := range []pulsecol.Pattern{pulsecol.Columns{}, pulsecol.SparseD{BlockSize: 16, Generation: 30}} {
		r := newRig(t, pulsecol.Config{Sparsity: 0.7, GroupSize: 16, Pattern: pattern, Schedule: pulsecol.Uniform{Refreshes: 1}}, a)
		const head = 7 * 104 * 2 // bytes: 7 groups, 104 scores apart
		var want []uint32
		for _, heads := range []int64{12, 11, 6, 5, 4, 3, 2, 1, 0} {
			func() {
				defer cudaop.SetScoreBytes(cudaop.SetScoreBytes(heads * head))
				r.start(t, 1)
				r.step(t)
			}()
			got := r.table(t, 0).Bits
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v: %d heads at a time give other columns", pattern, heads)
			}
		}
	}
}

// TestSameBits: two hundred runs on the same inputs give the same bits.
func TestSameBits(t *testing.T) { onBoth(t, testSameBits) }

func testSameBits(t *testing.T) {
	a := operands(4, kernel.Shape{Batch: 1, Heads: 4, KVHeads: 2, Len: 777, HeadDim: 128})
	r := newRig(t, pulsecol.Config{Sparsity: 0.8, GroupSize: 64, Schedule: pulsecol.Uniform{Refreshes: 1}}, a)
	var want [][]float32
	for range 100 {
		r.start(t, 2)
		got := [][]float32{r.step(t), r.step(t)}
		if want == nil {
			want = got
		}
		for i := range want {
			for j := range want[i] {
				if math.Float32bits(got[i][j]) != math.Float32bits(want[i][j]) {
					t.Fatalf("step %d: [%d] is %v, was %v", i+1, j, got[i][j], want[i][j])
				}
			}
		}
	}
}

// TestMemory: after a thousand steps with ten refreshes a machine holds what it
// held after ten.
func TestMemory(t *testing.T) {
	needGPU(t)
	a := operands(5, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 256, HeadDim: 64})
	r := newRig(t, pulsecol.Config{Sparsity: 0.8, Schedule: pulsecol.Uniform{Window: 1, Refreshes: 10}}, a)
	steps, early := 1000, int64(0)
	if testing.Short() {
		steps = 100
	}
	r.start(t, steps)
	for i := range steps {
		r.step(t)
		if i == 9 {
			early = cudaop.Held()
		}
	}
	if late := cudaop.Held(); late != early || early == 0 {
		t.Errorf("%d bytes held after %d steps, %d after 10", late, steps, early)
	}
}

// TestBesideGorgonia: our attention between matrix products of Gorgonia's own, in
// one graph. The last operator is ours: it waits for the product before it, which
// runs in another context, and Gorgonia's copy to the host does not.
func TestBesideGorgonia(t *testing.T) {
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

// TestClose: machines close at once, used or not, as often as one likes, and leave
// nothing on the GPU.
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
		if held := cudaop.Held(); held != 0 {
			t.Fatalf("%d bytes held after Close", held)
		}
	}
}

// TestDevice: with a GPU, Auto takes it for what it can do, and the precision left open
// is its own.
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

// TestErrors: what the GPU operators cannot do is an error that says so, where the
// graph is built if it can be.
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
	a.Valid[63] = 0 // padding behind
	r := newRig(t, pulsecol.Config{Sparsity: 0.5}, a)
	r.start(t, 1)
	if err := r.m.Step(); !errors.Is(err, op.ErrValue) {
		t.Errorf("padding behind: %v", err)
	}
}

// TestLayerOperators: the layers around attention, on values of the machine, beside
// the same operators on the CPU. Inputs are exact in the precision, so that all of the
// error is the GPU's: sums in float32, and results rounded once if at all.
func TestLayerOperators(t *testing.T) { onBoth(t, testLayerOperators) }

func testLayerOperators(t *testing.T) {
	for _, p := range []op.Precision{op.BFloat16, op.Float32} {
		for _, dim := range []int{64, 6} { // whole pieces of 8 elements, and others
			t.Run(fmt.Sprintf("%v,dim%d", p, dim), func(t *testing.T) { testLayers(t, p, dim) })
		}
	}
}

func testLayers(t *testing.T, precision op.Precision, dim int) {
	const batch, n, heads, out, vocab = 2, 37, 3, 71, 50
	features := heads * dim
	r := rand.New(rand.NewPCG(10, 0))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
			if precision == op.BFloat16 {
				x[i] = bf16.ToFloat32(bf16.FromFloat32(x[i]))
			}
		}
		return x
	}
	below := func(n, limit int) []int32 {
		x := make([]int32, n)
		for i := range x {
			x[i] = int32(r.IntN(limit))
		}
		return x
	}
	matrix := func(rows, cols int) op.Weight {
		return must(op.NewWeightFloat32(rows, cols, random(rows*cols)))(t)
	}
	g := gorgonia.NewGraph()
	x := input(g, "x", random(batch*n*features), batch, n, features)
	y := input(g, "y", random(batch*n*features), batch, n, features)
	h := input(g, "h", random(batch*n*features), batch, heads, n, dim)
	ids := input(g, "ids", below(batch*n, vocab), batch, n)
	positions := input(g, "positions", below(batch*n, 100000), batch, n)
	rows := input(g, "rows", []int32{0, 5, batch*n - 1, 7}, 4)
	taken := input(g, "taken", random(4*features), 1, 4, features)

	shared := matrix(out, features)
	type pair struct{ cpu, gpu *gorgonia.Value }
	results := map[string]pair{}
	for _, c := range []struct {
		o  gorgonia.Op
		in []*gorgonia.Node
	}{
		{op.NewEmbed("embed", matrix(vocab, features)), []*gorgonia.Node{ids}},
		{must(op.NewLinear("linear", op.Projection{Weight: matrix(out, features)}))(t), []*gorgonia.Node{x}},
		{must(op.NewLinear("biased", op.Projection{Weight: matrix(out, features), Bias: random(out)}))(t), []*gorgonia.Node{x}},
		{must(op.NewLinear("stacked", op.Projection{Weight: shared}, op.Projection{Weight: matrix(out, features), Bias: random(out)}))(t), []*gorgonia.Node{x}},
		{must(op.NewLinear("stacked otherwise", op.Projection{Weight: shared}, op.Projection{Weight: matrix(out, features)}))(t), []*gorgonia.Node{x}},
		{must(op.NewAddLinear("residual", op.Projection{Weight: matrix(features, features), Bias: random(features)}))(t), []*gorgonia.Node{x, y}},
		{must(op.NewAddLinear("residual of itself", op.Projection{Weight: matrix(features, features)}))(t), []*gorgonia.Node{x, x}},
		{op.NewTakeRows("rows"), []*gorgonia.Node{x, rows}},
		{op.NewLogits("logits", matrix(vocab, features)), []*gorgonia.Node{taken, rows}},
		{op.NewRMSNorm("norm", random(features), 1e-5), []*gorgonia.Node{x}},
		{must(op.NewRoPE("rope", op.Heads{Count: heads, Dim: dim}, 1e6))(t), []*gorgonia.Node{x, positions}},
		{must(op.NewRoPE("rope of some", op.Heads{First: 1, Count: 2, Dim: dim}, 1e6))(t), []*gorgonia.Node{x, positions}},
		{must(op.NewSplitHeads("split", op.Heads{Count: heads, Dim: dim}))(t), []*gorgonia.Node{x}},
		{must(op.NewSplitHeads("split some", op.Heads{First: 2, Count: 1, Dim: dim}))(t), []*gorgonia.Node{x}},
		{op.NewMergeHeads("merge"), []*gorgonia.Node{h}},
		{must(op.NewSwiGLU("swiglu", op.Projection{Weight: shared}, op.Projection{Weight: matrix(out, features), Bias: random(out)}))(t), []*gorgonia.Node{x}},
		{op.NewAdd("add"), []*gorgonia.Node{x, y}},
	} {
		cpu, gpu := both(t, precision, c.o, c.in...)
		results[c.o.String()] = pair{read(cpu), read(gpu)}
	}
	run(t, machine(t, g))
	for name, p := range results {
		t.Run(name, func(t *testing.T) { tol.Close(t, floats(p.gpu), floats(p.cpu), 1e-5) })
	}
}

// TestResidual: a sum goes to the memory of a residual that nobody reads any more,
// and to no other.
func TestResidual(t *testing.T) {
	needGPU(t)
	const n, features = 5, 24
	r := rand.New(rand.NewPCG(13, 0))
	matrix := func(rows int) op.Projection {
		v := make([]float32, rows*features)
		for i := range v {
			v[i] = float32(r.NormFloat64()) / 4
		}
		return op.Projection{Weight: must(op.NewWeightFloat32(rows, features, v))(t)}
	}
	table, first, second, third := matrix(7).Weight, matrix(features), matrix(features), matrix(features)
	ones := slices.Repeat([]float32{1}, features)
	g := gorgonia.NewGraph()
	ids := input(g, "ids", []int32{3, 1, 4, 1, 5}, 1, n)
	chain := func(apply func(o gorgonia.Op, in ...*gorgonia.Node) *gorgonia.Node) *gorgonia.Node {
		x := apply(op.NewEmbed("x", table), ids)
		norm := apply(op.NewRMSNorm("norm", ones, 1e-5), x)
		early := apply(must(op.NewAddLinear("early", first))(t), norm, x) // x is read once more
		sum := apply(op.NewAdd("sum"), early, x)
		late := apply(must(op.NewAddLinear("late", second))(t), sum, early) // early is not
		itself := apply(must(op.NewAddLinear("itself", third))(t), late, late)
		return apply(op.NewAdd("last"), itself, sum)
	}
	cpu := chain(func(o gorgonia.Op, in ...*gorgonia.Node) *gorgonia.Node { return must(op.Apply(o, in...))(t) })
	gpu := chain(func(o gorgonia.Op, in ...*gorgonia.Node) *gorgonia.Node {
		return must(op.Apply(must(cudaop.Wrap(o, op.Float32))(t), in...))(t)
	})
	want, got := read(cpu), read(gpu)
	if err := op.NewWorkspace().Plan(g, []op.Mode{op.Dense}); err != nil {
		t.Fatal(err)
	}
	vm := machine(t, g)
	for range 3 {
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		vm.Reset()
		tol.Close(t, floats(got), floats(want), 1e-5)
	}
}

// TestLayout: attention whose output lies by tokens gives the bits of attention whose
// output goes to the machine, whoever reads it.
func TestLayout(t *testing.T) { onBoth(t, testLayout) }

func testLayout(t *testing.T) {
	for _, pattern := range []pulsecol.Pattern{pulsecol.Columns{}, pulsecol.SparseD{BlockSize: 16, Generation: 10}, pulsecol.SlidingWindow{Width: 20}} {
		for _, p := range []pulsecol.Precision{pulsecol.BFloat16, pulsecol.Float32} {
			if cudaop.Portable() && p == pulsecol.Float32 {
				continue
			}
			t.Run(fmt.Sprintf("%v,%v", pattern, p), func(t *testing.T) {
				cfg := pulsecol.Config{Sparsity: 0.6, Pattern: pattern, Schedule: pulsecol.Uniform{Refreshes: 1}, Precision: p}
				if _, columns := pattern.(pulsecol.Columns); columns {
					cfg.GroupSize = 32
				}
				apart, together := newBlocks(t, cfg, true), newBlocks(t, cfg, false)
				for step, mode := range []string{"refresh", "reuse", "full", "reuse again"} {
					want := apart.run(t, step == 2)
					held := cudaop.Held()
					for what, got := range together.run(t, step == 2) {
						for i := range got {
							// What goes to the machine is not rounded, and then is when it comes back.
							if x, y := got[i], want[what][i]; rounded(p, x) != rounded(p, y) {
								t.Errorf("%s: %s: [%d] is %v, with copies %v", mode, what, i, x, y)
								break
							}
						}
					}
					if more := cudaop.Held() - held; step > 2 && more != 0 {
						t.Errorf("%s: %d more bytes held", mode, more)
					}
				}
			})
		}
	}
}

// rounded is a value as operators of a precision pass it on.
func rounded(p pulsecol.Precision, x float32) float32 {
	if p == pulsecol.BFloat16 {
		return bf16.ToFloat32(bf16.FromFloat32(x))
	}
	return x
}

// blocks are attentions of a transformer's blocks with the products behind them.
type blocks struct {
	ctl     *pulsecol.Controller
	m       *pulsecol.Machine
	results map[string]*gorgonia.Value
}

// newBlocks returns blocks of several shapes. Apart, the machine reads attention's
// outputs, so that they are in its memory.
func newBlocks(t *testing.T, cfg pulsecol.Config, apart bool) *blocks {
	t.Helper()
	cfg.Device = pulsecol.CUDA
	b := &blocks{ctl: must(pulsecol.NewController(cfg))(t), results: map[string]*gorgonia.Value{}}
	g := gorgonia.NewGraph()
	for i, s := range []kernel.Shape{
		{Batch: 2, Heads: 4, KVHeads: 2, Len: 150, HeadDim: 64},
		{Batch: 1, Heads: 7, KVHeads: 1, Len: 97, HeadDim: 128},
		{Batch: 2, Heads: 2, KVHeads: 2, Len: 33, HeadDim: 128},
		{Batch: 2, Heads: 4, KVHeads: 2, Len: 40, HeadDim: 80}, // bfloat16 becomes float32
		{Batch: 2, Heads: 2, KVHeads: 1, Len: 21, HeadDim: 6},
	} {
		b.add(t, g, i, cfg.Precision, s, apart)
	}
	if err := op.NewWorkspace().Plan(g, b.ctl.Modes()); err != nil {
		t.Fatal(err)
	}
	b.m = must(pulsecol.NewMachine(g, b.ctl))(t)
	t.Cleanup(func() {
		if err := errors.Join(b.m.Close(), b.ctl.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := b.ctl.Start(8); err != nil {
		t.Fatal(err)
	}
	return b
}

// add adds a block.
func (b *blocks) add(t *testing.T, g *gorgonia.ExprGraph, layer int, p pulsecol.Precision, s kernel.Shape, apart bool) {
	t.Helper()
	path := name(s, 32) + "."
	apply := func(o gorgonia.Op, in ...*gorgonia.Node) *gorgonia.Node {
		return must(op.Apply(must(cudaop.Wrap(o, p))(t), in...))(t)
	}
	r := rand.New(rand.NewPCG(14, uint64(layer)))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	split := func(name string, first, count int, x *gorgonia.Node) *gorgonia.Node {
		return apply(must(op.NewSplitHeads(path+name, op.Heads{First: first, Count: count, Dim: s.HeadDim}))(t), x)
	}
	all, width := s.Heads+2*s.KVHeads, s.Heads*s.HeadDim
	x := input(g, path+"x", random(s.Batch*s.Len*all*s.HeadDim), s.Batch, s.Len, all*s.HeadDim)
	q, k, v := split("q", 0, s.Heads, x), split("k", s.Heads, s.KVHeads, x), split("v", s.Heads+s.KVHeads, s.KVHeads, x)
	y := must(pulsecol.Attention(q, k, v, b.ctl.Layer(layer)))(t)
	dense := apply(must(op.NewDenseAttn(path+"dense", 0, false))(t), q, k, v)
	if apart {
		read(y)
		read(dense)
	}
	const features = 24
	out := op.Projection{Weight: must(op.NewWeightFloat32(features, width, random(features*width)))(t)}
	product := func(name string, y *gorgonia.Node) *gorgonia.Node {
		return apply(must(op.NewLinear(path+name, out))(t), apply(op.NewMergeHeads(path+name+".merge"), y))
	}
	results := map[string]*gorgonia.Node{
		"output":       apply(op.NewMergeHeads(path+"output"), y),
		"product":      product("product", y),
		"full product": product("full product", dense), // its only reader
	}
	if p == pulsecol.Float32 || s.HeadDim%64 == 0 { // others would take from the machine what is not rounded
		results["of itself"] = apply(must(op.NewDenseAttn(path+"itself", 0, false))(t), y, y, y)
	}
	for what, n := range results {
		b.results[path+what] = read(n)
	}
}

// run runs a step, of full attention or as scheduled.
func (b *blocks) run(t *testing.T, full bool) map[string][]float32 {
	t.Helper()
	b.ctl.SetDense(full)
	if err := b.m.Step(); err != nil {
		t.Fatal(err)
	}
	results := map[string][]float32{}
	for what, v := range b.results {
		results[what] = slices.Clone(floats(v))
	}
	return results
}

// BenchmarkLaunch is what an operator costs on the host, Gorgonia's part included,
// where all values stay on the GPU.
func BenchmarkLaunch(b *testing.B) {
	needGPU(b)
	const count = 256
	g := gorgonia.NewGraph()
	x := input(g, "x", make([]float32, 8), 1, 1, 8)
	weight := slices.Repeat([]float32{1}, 8)
	for i := range count {
		o := must(cudaop.Wrap(op.NewRMSNorm(fmt.Sprint(i), weight, 1e-5), op.BFloat16))(b)
		x = must(op.Apply(o, x))(b)
	}
	read(x)
	if err := op.NewWorkspace().Plan(g, []op.Mode{op.Dense}); err != nil {
		b.Fatal(err)
	}
	vm := machine(b, g)
	for b.Loop() {
		if err := vm.RunAll(); err != nil {
			b.Fatal(err)
		}
		vm.Reset()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/operator")
}

// TestIndices: ids and rows that are not there are errors that say which.
func TestIndices(t *testing.T) {
	needGPU(t)
	w := must(op.NewWeightFloat32(10, 8, make([]float32, 80)))(t)
	for _, c := range []struct {
		ids  []int32
		want string
	}{
		{[]int32{1, 10}, "row 0, position 1"},
		{[]int32{-1, 3}, "row 0, position 0"},
	} {
		g := gorgonia.NewGraph()
		o := must(cudaop.Wrap(op.NewEmbed("embed", w), op.AutoPrecision))(t)
		read(must(op.Apply(o, input(g, "ids", c.ids, 1, 2)))(t))
		if err := machine(t, g).RunAll(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("ids %v: %v, want an error about %q", c.ids, err, c.want)
		}
	}
}

// TestSideBySide: machines of one program live, run and close beside one another.
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
				twin, err := cudaop.Wrap(o, op.AutoPrecision)
				if err != nil {
					t.Error(err)
					return
				}
				y, err := op.Apply(twin, q, k, v)
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
