package main

import (
	"context"
	"encoding/json"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/inspect"
	"github.com/pulsecol/pulsecol/models"
)

// recorder keeps the tables of a method in its own generation, after its first selection
// of keys.
type recorder struct {
	step   int
	tables []*columns.Table // by layer
}

func (r *recorder) Observe(o pulsecol.Observation) {
	if r.step == 0 && o.Columns != nil {
		r.step = o.Step
	}
	if r.step == o.Step {
		r.tables = append(r.tables, &columns.Table{Heads: o.Columns.Heads, Len: o.Columns.Len, Group: o.Columns.Group, Bits: slices.Clone(o.Columns.Bits)})
	}
}

// TestInspectedTables: the keys that inspect compares with the attention are those that the
// method keeps in its own generation. Both generations are full attention up to the first
// selection, so queries and keys are the same.
func TestInspectedTables(t *testing.T) {
	for _, kind := range []string{"llada", "dream"} {
		dir := golden.Dir(t, kind)
		m, err := (&modelFlag{Model: &dir}).open()
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		steps, tokens, block, alg := 10, 40, 8, "maskgit_plus"
		s := m.sampler(&samplerFlags{Steps: &steps, GenLength: &tokens, BlockLength: &tokens, MaxNewTokens: &tokens, Alg: &alg})
		prompt := randomTokens(30, m.config(), 1)
		window := 11
		c := inspectCmd{Methods: attentionFlags{oneSetting{GroupSize: &block, BlockSize: &block, Window: &window}, deviceFlag{"cpu"}}}
		methods, err := c.methods(m, s, new(kong.Context))
		if err != nil {
			t.Fatal(err)
		}
		for i, method := range methods {
			t.Run(kind+"/"+method.method, func(t *testing.T) {
				var own recorder
				cfg := method.Config
				cfg.Observer = &own
				if _, err := s.generate(context.Background(), prompt, cfg, func(models.Progress) {}); err != nil {
					t.Fatal(err)
				}
				in := &inspector{methods: methods[i : i+1], layers: m.config().Layers}
				defer in.close()
				ctx, cancel := context.WithCancel(context.Background())
				in.stop = cancel
				_, err := s.generate(ctx, prompt, pulsecol.Config{Device: pulsecol.CPU, Observer: in}, func(p models.Progress) {
					if p.Step == own.step { // the tables are those of the first selection
						cancel()
					}
				})
				if in.err != nil || err == nil {
					t.Fatal(in.err, err)
				}
				if len(own.tables) != len(method.tables) {
					t.Fatalf("%d layers, want %d", len(method.tables), len(own.tables))
				}
				for l, want := range own.tables {
					if got := method.tables[l]; got.Group != want.Group || got.Heads != want.Heads || !slices.Equal(got.Bits, want.Bits) {
						t.Errorf("layer %d: other keys than in the method's own generation, at step %d", l, own.step)
					}
				}
			})
		}
	}
}

// TestInspectOrder: on the small model's own question the oracle keeps the most
// mass in every step, a schedule of columns no more, and refreshes bring it back
// to the oracle's.
func TestInspectOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("a generation of the small model")
	}
	dir := t.TempDir()
	out, said := command(t, "inspect", "--prompt", "Please sort the list 9 3 77 21 45 6 88 10.", "--group-size", "4", "--block-size", "4",
		"--eta", "0.5", "--refreshes", "4", "--window", "6", "--json", "--out", dir)
	if said != "" {
		t.Errorf("said %q", said)
	}
	var got inspection
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Fatal(err)
	}
	by := map[string]methodSummary{}
	for _, m := range got.Methods {
		by[m.Method] = m
		if len(m.Steps) != got.Steps || len(m.Layers) != got.Layers {
			t.Errorf("%s: %d steps and %d layers, want %d and %d", m.Method, len(m.Steps), len(m.Layers), got.Steps, got.Layers)
		}
		for _, s := range m.Steps {
			if f := s.fidelity(); (s.Mode == "dense") != math.IsNaN(f.Mass) || f.Mass > 1+1e-6 || f.Recall > 1 {
				t.Errorf("%s: step %d: %s with %+v", m.Method, s.Step, s.Mode, f)
			}
		}
	}
	oracle, pulse := by["oracle"], by["pulsecol"]
	for i, s := range oracle.Steps {
		other := pulse.Steps[i]
		if a, b := s.fidelity(), other.fidelity(); b.Mass > a.Mass+1e-6 || other.Mode == "refresh" && a != b {
			t.Errorf("step %d: the oracle has %+v, pulsecol (%s) %+v", s.Step, a, other.Mode, b)
		}
	}
	if len(pulse.RefreshSteps) != 4 || len(by["column-ss"].RefreshSteps) != 1 || len(by["window"].RefreshSteps) != 0 {
		t.Errorf("refreshed at %v, %v and %v", pulse.RefreshSteps, by["column-ss"].RefreshSteps, by["window"].RefreshSteps)
	}
	if *oracle.Mass <= *by["window"].Mass || *oracle.Mass <= *by["block-pr"].Mass {
		t.Errorf("mass of the oracle %.3f, of window %.3f and block-pr %.3f", *oracle.Mass, *by["window"].Mass, *by["block-pr"].Mass)
	}
	if want := []string{filepath.Join(dir, "attention.png"), filepath.Join(dir, "steps.png")}; !slices.Equal(got.Pictures, want) {
		t.Errorf("pictures %v, want %v", got.Pictures, want)
	}
	for _, name := range got.Pictures {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := png.Decode(f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestInspectNaN: NaN in the attention is an error, not a table of NaN.
func TestInspectNaN(t *testing.T) {
	m := inspected{steps: []stepSummary{{Step: 2}}}
	o := pulsecol.Observation{Layer: 1, Step: 2}
	err := m.add(o, []inspect.Fidelity{{Recall: 1, Mass: 1}, {Recall: 0.5, Mass: math.NaN()}})
	if err == nil || !strings.Contains(err.Error(), "step 2, layer 1, head 1: the attention is NaN") {
		t.Errorf("got %v", err)
	}
}
