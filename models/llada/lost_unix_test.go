//go:build unix

package llada

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/op"
)

// TestWeightsCutShort: weights that change under an open model are an error with the
// file's name, in a generation on the CPU and in Logits, and the process goes on. On a GPU
// the steps of a generation read copies of them.
func TestWeightsCutShort(t *testing.T) {
	for name, keep := range map[string]int64{"header only": 4096, "nothing": 0, "all but the last bytes, whose page stays": -100} {
		t.Run(name, func(t *testing.T) {
			dir := directory(t, map[string][]safetensors.Tensor{safetensors.SingleFile: tensors(t)})
			path := filepath.Join(dir, safetensors.SingleFile)
			m, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			cut := func() {
				if keep < 0 {
					info, err := os.Stat(path)
					if err != nil {
						t.Fatal(err)
					}
					keep += info.Size()
				}
				if err := os.Truncate(path, keep); err != nil {
					t.Fatal(err)
				}
			}
			check := func(what string, err error) {
				t.Helper()
				want := "checkpoint: " + path + " was cut short while in use: from "
				if !errors.Is(err, models.ErrWeights) || !errors.Is(err, op.ErrLost) || !strings.HasPrefix(err.Error(), "llada: ") || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: error %v, want %s", what, err, want)
				}
			}
			_, err = m.Generate(context.Background(), []int32{1, 2, 3}, pulsecol.Config{Device: pulsecol.CPU}, GenerateOptions{
				GenLength: 8, OnStep: func(p models.Progress) {
					if p.Step == 2 {
						cut()
					}
				},
			})
			check("Generate", err)
			_, err = m.Logits(context.Background(), [][]int32{{1, 2, 3}}, nil)
			check("Logits", err)
		})
	}
	if _, err := openGolden(t).Generate(context.Background(), []int32{1, 2, 3}, pulsecol.Config{}, GenerateOptions{GenLength: 4}); err != nil {
		t.Errorf("another model afterwards: %v", err)
	}
}

// TestGGUFCutShort is TestWeightsCutShort of a quantized file.
func TestGGUFCutShort(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(golden.Dir(t, "gguf"), "llada-a.Q4_K_M.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_, err = m.Generate(t.Context(), []int32{1, 2, 3}, pulsecol.Config{Device: pulsecol.CPU}, GenerateOptions{
		GenLength: 8, OnStep: func(p models.Progress) {
			if err := os.Truncate(path, 8192); p.Step == 2 && err != nil {
				t.Error(err)
			}
		},
	})
	if want := path + " was cut short while in use: from "; !errors.Is(err, models.ErrWeights) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}
