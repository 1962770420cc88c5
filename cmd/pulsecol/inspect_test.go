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
// of keys: with a cache those of the first block.
type recorder struct {
	step   int
	tables []*columns.Table // by layer
}

func (r *recorder) Observe(o pulsecol.Observation) {
	var t *columns.Table
	switch b, c := o.BlockColumns, o.Columns; {
	case b != nil:
		t = &columns.Table{Heads: b.Heads, Len: b.Len, Group: b.Group, Bits: slices.Clone(b.Bits), First: b.First, Queries: b.Rows}
	case c != nil:
		t = &columns.Table{Heads: c.Heads, Len: c.Len, Group: c.Group, Bits: slices.Clone(c.Bits)}
	}
	if r.step == 0 && t != nil {
		r.step = o.Step
	}
	if r.step == o.Step {
		r.tables = append(r.tables, t)
	}
}

// TestInspectedTables: the keys that inspect compares with the attention are those that the
// method keeps in its own generation. Both generations are full attention up to the first
// selection, so queries and keys are the same.
func TestInspectedTables(t *testing.T) {
	for _, of := range [][2]string{{"llada", "none"}, {"dream", "none"}, {"llada", "dual"}, {"llada", "prefix"}, {"dream", "dual"}, {"dream", "prefix"}} {
		kind, cache := of[0], of[1]
		dir := golden.Dir(t, kind)
		m, err := (&modelFlag{Model: &dir}).open()
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		steps, tokens, block, alg := 10, 40, 8, "maskgit_plus"
		length := tokens
		if cache != "none" {
			length = tokens / 2
		}
		s := m.sampler(&samplerFlags{Steps: &steps, GenLength: &tokens, BlockLength: &length, MaxNewTokens: &tokens, Alg: &alg})
		prompt := randomTokens(30, m.config(), 1)
		window := 11
		c := inspectCmd{Cache: cache, Methods: attentionFlags{oneSetting{GroupSize: &block, BlockSize: &block, Window: &window}, deviceFlag{"cpu"}}}
		methods, err := c.methods(m, s, new(kong.Context))
		if err != nil {
			t.Fatal(err)
		}
		for i, method := range methods {
			t.Run(kind+"/"+cache+"/"+method.method, func(t *testing.T) {
				var own recorder
				cfg := method.Config
				cfg.Observer, cfg.Cache = &own, caches[cache]
				if _, err := s.generate(context.Background(), prompt, cfg, func(models.Progress) {}); err != nil {
					t.Fatal(err)
				}
				in := &inspector{methods: methods[i : i+1], layers: m.config().Layers, device: pulsecol.CPU, cache: caching{name: cache}}
				defer in.close()
				ctx, cancel := context.WithCancel(context.Background())
				in.stop = cancel
				_, err := s.generate(ctx, prompt, in.config(), func(p models.Progress) {
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
					got := method.tables[l]
					if (cache == "none") != (got.Queries == 0) || (cache != "none" && method.Schedule != nil) != (want.Queries > 0) {
						t.Fatalf("tables of %d queries, and %d in the method's own generation", got.Queries, want.Queries)
					}
					bits := want.Bits
					if got.Queries > 0 && want.Queries == 0 { // fixed by position: some rows of it
						bits = bits[got.First*got.Words():][:got.Queries*got.Words()]
						want.First, want.Queries = got.First, got.Queries
					}
					if got.Group != want.Group || got.Heads != want.Heads || got.First != want.First || got.Queries != want.Queries || !slices.Equal(got.Bits, bits) {
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

// TestInspectCached: under a cache each block has columns of its own, from its first step on;
// the queries are the active rows.
func TestInspectCached(t *testing.T) {
	if testing.Short() {
		t.Skip("generations of the small model")
	}
	for cache, every := range map[string]string{"dual": "0", "prefix": "1"} {
		dir := t.TempDir()
		out, _ := command(t, "inspect", "--prompt", "Please sort the list 9 3 77 21.", "--group-size", "3", "--block-length", "8", "--gen-length", "16",
			"--cache", cache, "--prefill-every", every, "--json", "--out", dir)
		var got inspection
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if got.Cache != cache || got.BlockLength != 8 || got.Steps != 16 || len(got.Pictures) != 2 {
			t.Errorf("%s cache, blocks of %d, %d steps, pictures %v", got.Cache, got.BlockLength, got.Steps, got.Pictures)
		}
		by := map[string]methodSummary{}
		for _, m := range got.Methods {
			by[m.Method] = m
		}
		oracle, pulse := by["oracle"], by["pulsecol"]
		if _, ok := by["sparsed"]; ok || len(by) != 6 || !slices.Equal(pulse.RefreshSteps, []int{1, 9}) || len(oracle.RefreshSteps) != 16 {
			t.Errorf("%d methods; refreshed at %v, the oracle at %v", len(by), pulse.RefreshSteps, oracle.RefreshSteps)
		}
		for i, s := range pulse.Steps {
			kind, first, rows := "block", got.PromptTokens, 8
			if i >= 8 {
				first += 8
			}
			switch {
			case i == 0 || i == 8 && every == "1":
				kind = "prefill"
			case i == 8:
				kind = "commit"
			}
			if cache == "prefix" {
				rows = got.PromptTokens + 16 - first
			}
			if s.Kind != kind || *s.Block != (stepBlock{first, rows}) {
				t.Errorf("step %d: %s of %+v, want %s of %d rows from %d on", s.Step, s.Kind, *s.Block, kind, rows, first)
			}
			a, b := oracle.Steps[i].fidelity(), s.fidelity()
			if refreshed := i%8 == 0; b.Mass > 1+1e-6 || refreshed != (a == b) || (s.Mode == "refresh") != refreshed {
				t.Errorf("step %d (%s): the oracle has %+v, pulsecol %+v", s.Step, s.Mode, a, b)
			}
		}
	}
	for flags, says := range map[string]string{
		"--cache dual --method sparsed --out x":               "--method sparsed and --cache dual can't be used together",
		"--prefill-every 1":                                   "--prefill-every needs --cache",
		"--cache dual --small dream --first-token-at-prefill": "--prefill-every 1",
		"--cache prefix --gen-length 16 --block-length 7":     "block",
	} {
		var out, errs strings.Builder
		if code := run(append([]string{"inspect"}, strings.Fields(flags)...), stdio{in: strings.NewReader(""), out: &out, err: &errs}); code == 0 || !strings.Contains(errs.String(), says) {
			t.Errorf("%s: exit code %d, %q, want %q", flags, code, errs.String(), says)
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
