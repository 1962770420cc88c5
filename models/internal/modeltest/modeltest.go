// Package modeltest holds the tests that every model package runs.
package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/jsonfile"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/models"
)

// Model is what the tests need of a model.
type Model interface {
	Config() models.Config
	Encode(text string) ([]int32, error)
	Decode(ids []int32) (string, error)
	Logits(ctx context.Context, ids [][]int32, padding []int) ([]float32, error)
	Close() error
}

// Opened returns an opened model, which it closes with the test.
func Opened[M io.Closer](m M, err error) func(t testing.TB) M {
	return func(t testing.TB) M {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
}

// File returns a config.json of a text.
func File(text string) jsonfile.File { return jsonfile.File{Name: "config.json", Text: []byte(text)} }

// With returns a config.json with fields replaced; a nil value removes one.
func With(t testing.TB, config string, changes map[string]any) jsonfile.File {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(config), &fields); err != nil {
		t.Fatal(err)
	}
	maps.Copy(fields, changes)
	maps.DeleteFunc(fields, func(_ string, v any) bool { return v == nil })
	data, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return File(string(data))
}

// ConfigErrors checks that every wrong value of a field in config, and the absence of
// every required field, is an error that names the field.
func ConfigErrors(t *testing.T, parse func(jsonfile.File) (models.Config, error), config string, wrong map[string]any, required []string) {
	for _, field := range required {
		check(t, parse, With(t, config, map[string]any{field: nil}), field)
	}
	for field, value := range wrong {
		check(t, parse, With(t, config, map[string]any{field: value}), field)
	}
}

func check(t *testing.T, parse func(jsonfile.File) (models.Config, error), file jsonfile.File, field string) {
	t.Helper()
	if _, err := parse(file); !errors.Is(err, models.ErrConfig) || !strings.Contains(err.Error(), field) {
		t.Errorf("%s: error %v does not name the field %s", file.Text, err, field)
	}
}

// Rows splits a flat [b,n] tensor.
func Rows(flat []int32, shape []int) (out [][]int32) {
	for b := range shape[0] {
		out = append(out, flat[b*shape[1]:(b+1)*shape[1]])
	}
	return out
}

// LogitsEqualReference holds a model to the logits in a set of reference results.
func LogitsEqualReference(t *testing.T, m Model, set *golden.Set) {
	var cases struct{ Logits []string }
	set.JSON(&cases)
	if len(cases.Logits) == 0 {
		t.Fatal("no cases")
	}
	for _, name := range cases.Logits {
		t.Run(name, func(t *testing.T) {
			ids, shape := set.Int32s(name + ".ids")
			want, _ := set.Float32s(name + ".out")
			got, err := m.Logits(t.Context(), Rows(ids, shape), nil)
			if err != nil {
				t.Fatal(err)
			}
			tol.Close(t, got, want, 1e-4)
		})
	}
}

// Random checks models of random weights: they run, equal seeds give equal weights, and the
// context is the given one. name is that of a golden folder with a config.json.
func Random(t *testing.T, name string, open func(config []byte, context int, seed uint64) (Model, error)) {
	config, err := os.ReadFile(filepath.Join(golden.Dir(t, name), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	logits := func(seed uint64) []float32 {
		m, err := open(config, 0, seed)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		out, err := m.Logits(t.Context(), [][]int32{{1, 2, 3, 299}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	one := logits(1)
	if !slices.Equal(one, logits(1)) {
		t.Error("equal seeds, other logits")
	}
	if slices.Equal(one, logits(2)) {
		t.Error("another seed, equal logits")
	}
	var sum float64
	for _, x := range one {
		sum += math.Abs(float64(x))
	}
	if !(sum > 0) || math.IsInf(sum, 0) {
		t.Errorf("the logits' magnitudes sum to %v", sum)
	}

	for context, want := range map[int]int{0: 512, 70000: 70000} {
		m, err := open(config, context, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Config().Context; got != want {
			t.Errorf("a context of %d tokens, want %d", got, want)
		}
		if _, err := m.Encode("text"); !errors.Is(err, models.ErrNoTokenizer) {
			t.Errorf("Encode: %v, want %v", err, models.ErrNoTokenizer)
		}
		m.Close()
		if _, err := m.Logits(t.Context(), [][]int32{{1}}, nil); !errors.Is(err, models.ErrClosed) {
			t.Errorf("after Close: %v, want %v", err, models.ErrClosed)
		}
	}
	if _, err := open(config, -1, 0); !errors.Is(err, models.ErrRequest) {
		t.Errorf("a negative context: %v", err)
	}
	if _, err := open([]byte("{}"), 0, 0); !errors.Is(err, models.ErrConfig) {
		t.Errorf("an empty config: %v", err)
	}
}
