//go:build cuda

package cudaop_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// TestPureOperators: operators without a State, on values of the machine, and
// the same operators on the CPU in one graph.
func TestPureOperators(t *testing.T) { onBoth(t, testPureOperators) }

func testPureOperators(t *testing.T) {
	g := gorgonia.NewGraph() // one for all cases, because making a machine takes long
	var checks []func()
	for _, p := range []op.Precision{op.BFloat16, op.Float32} {
		for _, c := range attncase.Cases {
			if c.Padding != nil {
				continue // needs a State
			}
			if cudaop.SM80Forced() && (p == op.Float32 || !c.TensorCores()) {
				continue // float32 has no kernels for Hopper: both are the same
			}
			path := fmt.Sprintf("%v,%v", p, c)
			check := pureOperators(t, g, path, p, c.Shape, op.AttentionParams{Group: c.Group, Selection: op.Selection{Sparsity: c.Sparsity}})
			checks = append(checks, func() { t.Run(path, check) })
		}
	}
	run(t, machine(t, g))
	for _, check := range checks {
		check()
	}
}

// pureOperators adds a layer's operators and their CUDA implementations to a graph, and returns the
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

// TestLayer: refresh, reuse, dense and refresh again under a controller, with and
// without padding.
func TestLayer(t *testing.T) { onBoth(t, testLayer) }

func testLayer(t *testing.T) {
	for _, s := range attncase.Cases {
		if !s.TensorCores() || !s.LeftOnly() {
			continue // TestPatterns has float32; padding is on the left under a controller
		}
		for _, pad := range []attncase.Padding{nil, attncase.Left} {
			if pad == nil && s.Padding != nil || pad != nil && s.Len < 16 {
				continue // has padding of its own; a fifth of few positions is none
			}
			t.Run(fmt.Sprintf("%v,padded=%v", s, pad != nil), func(t *testing.T) {
				a := operands(3, s.Shape)
				pad.Apply(a)
				r := newRig(t, pulsecol.Config{Sparsity: max(s.Sparsity, 0.01), GroupSize: s.Group, Schedule: pulsecol.Uniform{Refreshes: 1}}, a)
				r.start(t, 5)
				full, _ := ref.Attention[float64](a, nil)
				tol.Close(t, real(a, r.step(t)), real(a, full), outputError)
				table := r.table(t, 0)
				overlap(t, a, table, s.Group, max(s.Sparsity, 0.01))

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
				attncase.Rise(a)
				for i, x := range a.K {
					a.K[i] = bf16.ToFloat32(bf16.FromFloat32(x))
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

// TestHugeGroup: a group size beyond the kernels' integers means one group of all queries.
func TestHugeGroup(t *testing.T) {
	onBoth(t, func(t *testing.T) {
		for _, precision := range []pulsecol.Precision{pulsecol.BFloat16, pulsecol.Float32} {
			a := operands(12, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 130, HeadDim: 64})
			r := newRig(t, pulsecol.Config{Sparsity: 0.5, GroupSize: math.MaxInt, Precision: precision, Schedule: pulsecol.Uniform{Refreshes: 1}}, a)
			r.start(t, 2)
			r.step(t)
			table := r.table(t, 0)
			table.Group = a.Len
			sparse, _ := ref.Attention[float64](a, table)
			tol.Close(t, r.step(t), sparse, outputError)
		}
	})
}

// TestScoreParts: scores of some heads at a time give the same columns as scores of all heads.
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
