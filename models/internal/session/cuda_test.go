//go:build cuda

package session_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/internal/sampler"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/dream"
	"github.com/pulsecol/pulsecol/models/internal/session"
	"github.com/pulsecol/pulsecol/models/llada"
	"gorgonia.org/gorgonia"
)

// watched is a sampler that counts the logits that implement RuleApplier, or hides that
// they do.
type watched struct {
	session.Sampler
	hide     bool
	appliers *int
}

func (w watched) Generate(ctx context.Context, prompts [][]int32, forward sampler.Forward) (*sampler.Result, error) {
	return w.Sampler.Generate(ctx, prompts, func(ctx context.Context, p sampler.Pass) (lmhead.Logits, error) {
		logits, err := forward(ctx, p)
		if _, ok := logits.(lmhead.RuleApplier); ok {
			*w.appliers++
		}
		if w.hide {
			logits = struct{ lmhead.Logits }{logits}
		}
		return logits, err
	})
}

// openModels opens the small models, if there is a GPU to run them on.
func openModels(t *testing.T) (*llada.Model, *dream.Model) {
	t.Helper()
	if err := cudaop.Available(); err != nil {
		t.Skip(err)
	}
	l, err := llada.OpenFS(tinymodel.FS(), tinymodel.Weights())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	d, err := dream.OpenFS(tinymodel.DreamFS(), tinymodel.DreamWeights())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return l, d
}

// TestInputsFirst: a step copies all its inputs to the GPU before it launches anything, so
// that no copy makes the host wait for the GPU.
func TestInputsFirst(t *testing.T) {
	l, d := openModels(t)
	for name, build := range map[string]session.Builder{"llada": l.Build, "dream": d.Build} {
		t.Run(name, func(t *testing.T) {
			ctl, err := pulsecol.NewController(pulsecol.Config{Device: pulsecol.CUDA, Sparsity: 0.5, GroupSize: 16})
			if err != nil {
				t.Fatal(err)
			}
			g := gorgonia.NewGraph()
			if _, err := build(g, models.Shape{Batch: 2, Len: 20, Rows: 3, Padded: true}, ctl); err != nil {
				t.Fatal(err)
			}
			vm, err := cudaop.NewTapeMachine(g)
			if err != nil {
				t.Fatal(err)
			}
			defer cudaop.Close(vm)
			// Prog's type is Gorgonia's own; as a string it has a line for each instruction.
			program := fmt.Sprint(reflect.ValueOf(vm).MethodByName("Prog").Call(nil)[0].Interface())
			program, _, _ = strings.Cut(program, "\nArgs:")
			before, after, found := strings.Cut(program, "cuda.Embed")
			if copies := strings.Count(before, "memcpy("); !found || copies != 4 {
				t.Errorf("%d inputs are copied before the embedding, want 4:\n%s", copies, before)
			}
			if strings.Contains(after, "memcpy(") {
				t.Errorf("an input is copied after the embedding:\n%s", after)
			}
		})
	}
}

// TestSamplersApplyRules: every sampler gives the same tokens whether the GPU applies its rule
// or the rows are copied from there; in batches with padding, guided, in blocks.
func TestSamplersApplyRules(t *testing.T) {
	l, d := openModels(t)
	const tokens = 12
	lladaWith := func(change func(*sampler.LLaDA)) func(onStep func(sampler.StepInfo)) session.Sampler {
		return func(onStep func(sampler.StepInfo)) session.Sampler {
			o := sampler.LLaDA{Steps: 6, GenLength: tokens, BlockLength: 6, MaskID: l.Config().MaskID, EOSID: l.Config().EOSID, EoTID: 3, OnStep: onStep}
			change(&o)
			return o
		}
	}
	dreamWith := func(change func(*sampler.Dream)) func(onStep func(sampler.StepInfo)) session.Sampler {
		return func(onStep func(sampler.StepInfo)) session.Sampler {
			o := sampler.Dream{MaxNewTokens: tokens, Steps: 6, Eps: 1e-3, TopP: 1, MaskID: d.Config().MaskID, OnStep: onStep}
			change(&o)
			return o
		}
	}
	for name, c := range map[string]struct {
		sampler func(onStep func(sampler.StepInfo)) session.Sampler
		guided  bool
	}{
		"llada":             {lladaWith(func(o *sampler.LLaDA) {}), false},
		"llada,random":      {lladaWith(func(o *sampler.LLaDA) { o.Remasking = sampler.RandomOrder }), false},
		"llada,suppressed":  {lladaWith(func(o *sampler.LLaDA) { o.SuppressMask, o.LogitsEOSInf, o.ConfidenceEOSEoTInf = true, true, true }), false},
		"llada,threshold":   {lladaWith(func(o *sampler.LLaDA) { o.Threshold = 0.9 }), false},
		"llada,factor":      {lladaWith(func(o *sampler.LLaDA) { o.Factor = 1 }), false},
		"llada,guided":      {lladaWith(func(o *sampler.LLaDA) { o.CFGScale = 0.5 }), true},
		"llada,bf16":        {lladaWith(func(o *sampler.LLaDA) { o.ConfidenceDType = lmhead.BFloat16 }), false},
		"llada,temperature": {lladaWith(func(o *sampler.LLaDA) { o.Temperature, o.CFGScale = 1, 1 }), true},
		"dream,origin":      {dreamWith(func(o *sampler.Dream) {}), false},
		"dream,maskgit":     {dreamWith(func(o *sampler.Dream) { o.Alg = sampler.MaskgitPlus }), false},
		"dream,margin":      {dreamWith(func(o *sampler.Dream) { o.Alg = sampler.TopkMargin }), false},
		"dream,entropy":     {dreamWith(func(o *sampler.Dream) { o.Alg, o.SuppressMask = sampler.Entropy, true }), false},
		"dream,threshold":   {dreamWith(func(o *sampler.Dream) { o.Alg, o.Threshold = sampler.ConfidenceThreshold, 0.9 }), false},
		"dream,nucleus":     {dreamWith(func(o *sampler.Dream) { o.Alg, o.TopP, o.TopK, o.Temperature = sampler.Entropy, 0.9, 20, 0.5 }), false},
	} {
		t.Run(name, func(t *testing.T) {
			settings := session.Settings{Build: l.Build, Config: pulsecol.Config{Device: pulsecol.CUDA, Sparsity: 0.5, GroupSize: 16}}
			encode, m := l.Encode, l.Config()
			if name[0] == 'd' {
				encode, m = d.Encode, d.Config()
				settings.Build, settings.PositionsSkipPadding = d.Build, true
			}
			settings.Context, settings.Vocab, settings.MaskID, settings.PadID = m.Context, m.Vocab, m.MaskID, m.PadID
			var prompts [][]int32
			for _, prompt := range []string{"Q: Please reverse the list 66 50 47 62.\nA:", "Q: Please double the list 3 4.\nA:"} {
				ids, err := encode(prompt)
				if err != nil {
					t.Fatal(err)
				}
				prompts = append(prompts, ids)
			}
			sess, err := session.New(settings)
			if err != nil {
				t.Fatal(err)
			}
			defer sess.Close()
			var answers [2][]models.Result
			for i, hide := range []bool{false, true} {
				appliers := 0
				loads := 0
				o := session.Generation{NewTokens: tokens, Guided: c.guided, OnLoad: func(_, _ int64) { loads++ }}
				answers[i], err = sess.Generate(t.Context(), prompts, o, func(onStep func(sampler.StepInfo)) session.Sampler {
					return watched{c.sampler(onStep), hide, &appliers}
				})
				if err != nil {
					t.Fatal(err)
				}
				if (loads > 0) != (i == 0) {
					t.Errorf("generation %d reported %d parts of the weights", i, loads)
				}
				if appliers != answers[i][0].Steps {
					t.Errorf("logits of %d of %d steps apply rules", appliers, answers[i][0].Steps)
				}
			}
			for b := range answers[0] {
				if diff := cmp.Diff(answers[1][b].OutputIDs, answers[0][b].OutputIDs); diff != "" {
					t.Errorf("prompt %d: rule applied on the GPU and to copied rows (-copied +GPU):\n%s", b, diff)
				}
			}
		})
	}
	if held := gpu.Held(); held != 0 {
		t.Errorf("%d bytes held after all sessions closed", held)
	}
}
