package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// command runs the command in this process and returns its output.
func command(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	if status := run(args, stdio{strings.NewReader(""), &out, &err}); status != 0 {
		t.Fatalf("pulsecol %s: exit status %d: %s", strings.Join(args, " "), status, err.String())
	}
	return out.String(), err.String()
}

// generated runs generate --json.
func generated(t *testing.T, args ...string) (g generation) {
	t.Helper()
	out, _ := command(t, append([]string{"generate", "--json"}, args...)...)
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&g); err != nil {
		t.Fatal(err)
	}
	if d.More() || strings.Count(out, "\n") != 1 {
		t.Fatalf("more than one object or line: %s", out)
	}
	return g
}

// TestGenerateEqualsReference: the tokens of the published samplers, and of those
// over the PulseCol reference.
func TestGenerateEqualsReference(t *testing.T) {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	type goldenCase struct {
		Name         string
		Steps        int
		GenLength    int     `json:"gen_length"`
		BlockLength  int     `json:"block_length"`
		CFGScale     float64 `json:"cfg_scale"`
		MaxNewTokens int     `json:"max_new_tokens"`
		Eps          float64
		Alg          string
		GroupSize    int `json:"group_size"`
		Sparsity     float64
		Eta          float64
		Refreshes    int
		RefreshSteps []int `json:"refresh_steps_0based"`
	}
	for _, model := range []string{"llada", "dream"} {
		set := golden.Open(t, model+"/expected")
		var cases struct {
			Generate []goldenCase
			PulseCol []goldenCase `json:"pulsecol"`
		}
		set.JSON(&cases)
		if len(cases.Generate) == 0 {
			t.Fatal("no cases")
		}
		for _, c := range append(cases.Generate, cases.PulseCol...) {
			t.Run(model+"/"+c.Name, func(t *testing.T) {
				prompt, _ := set.Int32s(c.Name + ".prompt")
				want, _ := set.Int32s(c.Name + ".out")
				args := []string{"--model", golden.Dir(t, model), "--prompt-ids", listed(prompt), "--steps", strconv.Itoa(c.Steps),
					"--precision", "float32"} // GPUs default to bfloat16
				if model == "llada" {
					args = append(args, "--gen-length", strconv.Itoa(c.GenLength), "--block-length", strconv.Itoa(c.BlockLength))
				} else {
					args = append(args, "--max-new-tokens", strconv.Itoa(c.MaxNewTokens), "--eps", number(c.Eps), "--alg", c.Alg)
				}
				if c.CFGScale > 0 {
					args = append(args, "--cfg-scale", number(c.CFGScale))
				}
				method := "full"
				if c.Sparsity > 0 {
					method = "pulsecol"
					args = append(args, "--method", "pulsecol", "--sparsity", number(c.Sparsity), "--group-size", strconv.Itoa(c.GroupSize),
						"--eta", number(c.Eta), "--refreshes", strconv.Itoa(c.Refreshes))
				}
				g := generated(t, args...)
				if got := slices.Concat(g.PromptIDs, g.OutputIDs); !slices.Equal(got, want) {
					t.Errorf("got  %v\nwant %v", got, want)
				}
				refreshes := []int{}
				for _, s := range c.RefreshSteps {
					refreshes = append(refreshes, s+1)
				}
				if !slices.Equal(g.RefreshSteps, refreshes) {
					t.Errorf("refreshed at %v, want %v", g.RefreshSteps, refreshes)
				}
				modes := map[string]int{"dense": 0, "refresh": len(refreshes), "reuse": c.Steps - len(refreshes)}
				if method == "full" {
					modes = map[string]int{"dense": c.Steps, "refresh": 0, "reuse": 0}
				}
				for mode, n := range modes {
					if g.Modes[mode] != n {
						t.Errorf("%d %s steps, want %d", g.Modes[mode], mode, n)
					}
				}
				if g.Steps != c.Steps || g.Forwards != c.Steps || g.Method != method || g.Interrupted || g.Seconds <= 0 {
					t.Errorf("got %+v", g)
				}
			})
		}
	}
}

func TestLogitsEqualReference(t *testing.T) {
	for _, model := range []string{"llada", "dream"} {
		t.Run(model, func(t *testing.T) {
			set := golden.Open(t, model+"/expected")
			ids, _ := set.Int32s("logits.1x37.ids")
			want, shape := set.Float32s("logits.1x37.out")
			path := filepath.Join(t.TempDir(), "logits.safetensors")
			if out, _ := command(t, "logits", "--model", golden.Dir(t, model), "--ids", listed(ids), "--out", path); out != "" {
				t.Errorf("output %q", out)
			}
			f, err := safetensors.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if names := f.Names(); !slices.Equal(names, []string{"logits"}) {
				t.Fatalf("tensors %v", names)
			}
			logits, err := f.Tensor("logits")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(logits.Shape, shape) || logits.DType != quant.F32 {
				t.Fatalf("%s %v, want F32 %v", logits.DType, logits.Shape, shape)
			}
			got, err := logits.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			tol.Close(t, got, want, 1e-4)
			if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
				t.Errorf("%v left in the directory", left)
			}
		})
	}
}

func TestSmallModelAnswersItsQuestion(t *testing.T) {
	out, said := command(t, "generate")
	if got := strings.TrimSpace(out); got != tinymodel.Answer {
		t.Errorf("answered %q, want %q", got, tinymodel.Answer)
	}
	end := tinymodel.Question[max(0, len(tinymodel.Question)-40):]
	if !strings.Contains(said, end) || !strings.Contains(said, "expected: "+tinymodel.Answer) || !strings.Contains(said, ": dual cache with 1 prefill, 3 commits and 28 block steps, ") {
		t.Errorf("said %q", said)
	}
}

// TestInterrupt: an interrupt stops the generation, and the output so far is printed.
func TestInterrupt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted here")
	}
	const steps = 500
	cmd := exec.Command("pulsecol", "generate", "--json", "--watch", "--model", golden.Dir(t, "llada"),
		"--prompt-ids", "1,2,3", "--gen-length", strconv.Itoa(steps), "--steps", strconv.Itoa(steps))
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := ""
	for lines := bufio.NewScanner(said); lines.Scan(); last = lines.Text() {
		if last == "" { // the first step is done
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("%v, want exit status %d", err, exitInterrupted)
	}
	if last != "pulsecol: interrupted" {
		t.Errorf("the last line is %q", last)
	}
	var g generation
	if err := json.Unmarshal(out.Bytes(), &g); err != nil {
		t.Fatal(err)
	}
	if !g.Interrupted || g.Steps < 1 || g.Steps >= steps || len(g.OutputIDs) != steps {
		t.Errorf("interrupted: %t, %d steps, %d tokens", g.Interrupted, g.Steps, len(g.OutputIDs))
	}
}
