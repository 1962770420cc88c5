package golden

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
)

// sets are the reference outputs that testdata/README.md lists.
var sets = []string{"kernel/attention", "llada/expected", "dream/expected", "sparsed/blockmask", "cache/fastdllm", "cache/columns"}

// TestSets: every tensor of every set decodes to as many values as its shape has
// elements, and the set's JSON parses.
func TestSets(t *testing.T) {
	for _, name := range sets {
		t.Run(name, func(t *testing.T) {
			s := Open(t, name)
			names := s.file.Names()
			if len(names) == 0 {
				t.Fatal("no tensors")
			}
			for _, tensor := range names {
				info, err := s.file.Tensor(tensor)
				if err != nil {
					t.Fatal(err)
				}
				var n int
				var shape []int
				switch info.DType {
				case quant.F32:
					var v []float32
					v, shape = s.Float32s(tensor)
					n = len(v)
				case quant.I32:
					var v []int32
					v, shape = s.Int32s(tensor)
					n = len(v)
				default:
					t.Fatalf("%s is %s, want F32 or I32", tensor, info.DType)
				}
				want := 1
				for _, d := range shape {
					want *= d
				}
				if n != want || n == 0 {
					t.Errorf("%s: %d values of shape %v", tensor, n, shape)
				}
			}
			var parameters any
			s.JSON(&parameters)
			if parameters == nil {
				t.Error("no parameters")
			}
		})
	}
}

// The weights that go with the expected outputs are there for the models' loaders.
func TestModels(t *testing.T) {
	for _, name := range []string{"llada", "dream"} {
		dir := Dir(t, name)
		c, err := safetensors.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "config.json")); err != nil {
			t.Error(err)
		}
	}
}

// One case against numbers that follow from what attention is, so that a file
// whose tensors were swapped or scrambled does not pass: the columns are
// ascending, and the scores of a group are means of probabilities.
func TestAttentionCase(t *testing.T) {
	s := Open(t, "kernel/attention")
	var cases []struct {
		Case, Batch, Heads int
		SeqLen             int `json:"seq_len"`
		GroupSize          int `json:"group_size"`
		Keep               int
	}
	s.JSON(&cases)
	for _, c := range cases {
		t.Run(fmt.Sprint(c.Case), func(t *testing.T) {
			groups := (c.SeqLen + c.GroupSize - 1) / c.GroupSize
			index, shape := s.Int32s(fmt.Sprintf("case%d.index", c.Case))
			if want := []int{c.Batch, c.Heads, groups, c.Keep}; !slices.Equal(shape, want) {
				t.Fatalf("index has shape %v, want %v", shape, want)
			}
			scores, shape := s.Float32s(fmt.Sprintf("case%d.scores", c.Case))
			if want := []int{c.Batch, c.Heads, groups, c.SeqLen}; !slices.Equal(shape, want) {
				t.Fatalf("scores have shape %v, want %v", shape, want)
			}
			for row := range slices.Chunk(index, c.Keep) {
				if !slices.IsSorted(row) || row[0] < 0 || int(row[c.Keep-1]) >= c.SeqLen {
					t.Fatalf("columns %v are not ascending within [0, %d)", row, c.SeqLen)
				}
			}
			for row := range slices.Chunk(scores, c.SeqLen) {
				sum := 0.0
				for _, p := range row {
					sum += float64(p)
				}
				// Rounding positive values that sum to 1 to float32 moves
				// their sum by at most 2^-24.
				if math.Abs(sum-1) > 0x1p-24 {
					t.Fatalf("scores of a group sum to %v, want 1", sum)
				}
			}
		})
	}
}

// Fatals stop the test that they are reported to, so each runs with a recorder
// in a goroutine of its own.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(f string, args ...any) {
	r.fatal = fmt.Sprintf(f, args...)
	runtime.Goexit()
}

func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name, says string
		run        func(testing.TB)
	}{
		{"no folder", "nowhere", func(t testing.TB) { Dir(t, "nowhere") }},
		{"a file", "is not a folder", func(t testing.TB) { Dir(t, "README.md") }},
		{"no set", "nothing.safetensors", func(t testing.TB) { Open(t, "kernel/nothing") }},
		{"no tensor", `attention.safetensors: tensor not found: "case9.q"`, func(t testing.TB) { Open(t, "kernel/attention").Float32s("case9.q") }},
		{"not floats", `attention: safetensors: tensor "case0.index" is I32`, func(t testing.TB) { Open(t, "kernel/attention").Float32s("case0.index") }},
		{"not integers", `tensor "case0.q" is F32, want I32`, func(t testing.TB) { Open(t, "kernel/attention").Int32s("case0.q") }},
		{"no JSON", "model.json", func(t testing.TB) { Open(t, "llada/model").JSON(new(any)) }},
		{"other JSON", "attention.json: json: cannot unmarshal", func(t testing.TB) { Open(t, "kernel/attention").JSON(new(string)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.run(r)
			}()
			<-done
			if !strings.Contains(r.fatal, c.says) {
				t.Errorf("failed with %q, want it to contain %q", r.fatal, c.says)
			}
		})
	}
}

func TestOutsideModule(t *testing.T) {
	t.Chdir(t.TempDir())
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		Dir(r, "kernel")
	}()
	<-done
	if !strings.Contains(r.fatal, "no go.mod") {
		t.Errorf("failed with %q, want it to contain \"no go.mod\"", r.fatal)
	}
}
