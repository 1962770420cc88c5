//go:build cuda

package cudaop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/dream"
	"github.com/pulsecol/pulsecol/models/llada"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestModels: the small models give the same answers on the GPU as on the CPU. Values on the
// GPU are bfloat16, so the test uses answers of high confidence.
func TestModels(t *testing.T) {
	needGPU(t)
	prompts := []string{"Q: Please reverse the list 66 50 47 62.\nA:"}
	if !testing.Short() {
		prompts = append(prompts, tinymodel.Question)
	}
	type generate func(prompt string, cfg pulsecol.Config) (string, error)
	l := must(llada.OpenFS(tinymodel.FS(), tinymodel.Weights()))(t)
	defer l.Close()
	d := must(dream.OpenFS(tinymodel.DreamFS(), tinymodel.DreamWeights()))(t)
	defer d.Close()
	for name, run := range map[string]generate{
		"llada": func(prompt string, cfg pulsecol.Config) (string, error) {
			ids, err := l.Encode(prompt)
			if err != nil {
				return "", err
			}
			res, err := l.Generate(context.Background(), ids, cfg, llada.GenerateOptions{})
			if err != nil {
				return "", err
			}
			return l.Decode(res.OutputIDs)
		},
		"dream": func(prompt string, cfg pulsecol.Config) (string, error) {
			ids, err := d.Encode(prompt)
			if err != nil {
				return "", err
			}
			res, err := d.Generate(context.Background(), ids, cfg, dream.GenerateOptions{})
			if err != nil {
				return "", err
			}
			return d.Decode(res.OutputIDs)
		},
	} {
		for i, prompt := range prompts {
			for _, cfg := range []pulsecol.Config{{}, {Sparsity: 0.5, GroupSize: 32}} {
				t.Run(fmt.Sprintf("%s,prompt%d,sparsity%g", name, i, cfg.Sparsity), func(t *testing.T) {
					cfg.Device = pulsecol.CPU
					want := must(run(prompt, cfg))(t)
					cfg.Device = pulsecol.CUDA
					if got := must(run(prompt, cfg))(t); got != want {
						t.Errorf("%q, on the CPU %q", got, want)
					}
				})
			}
		}
	}
	if held := gpu.Held(); held != 0 {
		t.Errorf("%d bytes held after all sessions closed", held)
	}
}

// reference is a model with logits that its reference implementation gave.
type reference struct {
	set   string
	build func(g *gorgonia.ExprGraph, s models.Shape, ctl *pulsecol.Controller) (*models.Graph, error)
}

// logits runs one step of a model in a graph of its own.
func (r *reference) logits(t *testing.T, ids []int32, shape []int, cfg pulsecol.Config) []float32 {
	t.Helper()
	ctl := must(pulsecol.NewController(cfg))(t)
	g := gorgonia.NewGraph()
	n := len(ids)
	m := must(r.build(g, models.Shape{Batch: shape[0], Len: shape[1], Rows: n}, ctl))(t)
	positions, rows := make([]int32, n), make([]int32, n)
	for i := range n {
		positions[i], rows[i] = int32(i%shape[1]), int32(i)
	}
	for node, data := range map[*gorgonia.Node][]int32{m.IDs: ids, m.Positions: positions, m.Rows: rows} {
		if err := gorgonia.Let(node, tensor.New(tensor.WithShape(node.Shape()...), tensor.WithBacking(data))); err != nil {
			t.Fatal(err)
		}
	}
	if err := op.NewWorkspace().Plan(g, ctl.Modes(), m.Logits); err != nil {
		t.Fatal(err)
	}
	out := func() []float32 { return m.Logits.Value().Data().([]float32) }
	if _, onGPU := m.Logits.Op().(exec.DeviceOp); onGPU {
		copied := read(m.Logits)
		out = func() []float32 { return floats(copied) }
	}
	vm := must(pulsecol.NewMachine(g, ctl))(t)
	defer func() {
		if err := errors.Join(vm.Close(), ctl.Close()); err != nil {
			t.Error(err)
		}
	}()
	if err := ctl.Start(1); err != nil {
		t.Fatal(err)
	}
	if err := vm.Step(); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(out())
}

// TestReferenceLogits: the reference implementations' logits on the GPU, and those of
// the embedded models. In float32 they are the CPU's to its tolerance. In bfloat16 the
// error is at most twice that of rounding the operands of the blocks' products alone,
// which is what the CPU does. bench/e2e.py --check says what PyTorch's is.
func TestReferenceLogits(t *testing.T) { onBoth(t, testReferenceLogits) }

func testReferenceLogits(t *testing.T) {
	l := must(llada.Open(golden.Dir(t, "llada")))(t)
	defer l.Close()
	d := must(dream.Open(golden.Dir(t, "dream")))(t)
	defer d.Close()
	small := must(llada.OpenFS(tinymodel.FS(), tinymodel.Weights()))(t)
	defer small.Close()
	smallDream := must(dream.OpenFS(tinymodel.DreamFS(), tinymodel.DreamWeights()))(t)
	defer smallDream.Close()
	check := func(t *testing.T, r *reference, ids []int32, shape []int, want []float32) {
		tol.Close(t, r.logits(t, ids, shape, pulsecol.Config{Device: pulsecol.CUDA, Precision: pulsecol.Float32}), want, 1e-4)
		plain := r.logits(t, ids, shape, pulsecol.Config{Device: pulsecol.CPU, Precision: pulsecol.BFloat16})
		tol.Close(t, r.logits(t, ids, shape, pulsecol.Config{Device: pulsecol.CUDA, Precision: pulsecol.BFloat16}), want, 2*tol.RelL2(plain, want))
	}
	for _, r := range []reference{{"llada/expected", l.Build}, {"dream/expected", d.Build}} {
		set := golden.Open(t, r.set)
		var cases struct{ Logits []string }
		set.JSON(&cases)
		for _, name := range cases.Logits {
			t.Run(r.set+"/"+name, func(t *testing.T) {
				ids, shape := set.Int32s(name + ".ids")
				want, _ := set.Float32s(name + ".out")
				check(t, &r, ids, shape, want)
			})
		}
	}
	for _, r := range []reference{{"embedded llada", small.Build}, {"embedded dream", smallDream.Build}} {
		t.Run(r.set, func(t *testing.T) {
			ids := make([]int32, 512)
			for i := range ids {
				ids[i] = int32(i * 37 % small.Config().Vocab) // as in bench/e2e.py
			}
			shape := []int{1, len(ids)}
			check(t, &r, ids, shape, r.logits(t, ids, shape, pulsecol.Config{Device: pulsecol.CPU, Precision: pulsecol.Float32}))
		})
	}
}
