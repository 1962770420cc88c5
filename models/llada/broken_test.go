package llada

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/models"
)

func TestBrokenCheckpoints(t *testing.T) {
	ts := tensors(t)
	write := func(ts []safetensors.Tensor) func(*testing.T) string {
		return func(t *testing.T) string {
			return directory(t, map[string][]safetensors.Tensor{"model.safetensors": ts})
		}
	}
	changed := func(change func(x *safetensors.Tensor)) []safetensors.Tensor {
		c := slices.Clone(ts)
		change(&c[3])
		return c
	}
	for name, c := range map[string]struct {
		dir  func(*testing.T) string
		want string // in the error
		is   error
	}{
		"no directory":    {func(t *testing.T) string { return filepath.Join(t.TempDir(), "none") }, "config.json", fs.ErrNotExist},
		"empty directory": {func(t *testing.T) string { return t.TempDir() }, "config.json", fs.ErrNotExist},
		"no weights":      {func(t *testing.T) string { return directory(t, nil) }, "model.safetensors", fs.ErrNotExist},
		"missing tensor":  {write(ts[1:]), ts[0].Name, models.ErrWeights},
		"extra tensor":    {write(append(slices.Clone(ts), safetensors.FromFloat32s("model.extra", []int{1}, []float32{1}))), "model.extra", models.ErrWeights},
		"wrong shape": {write(changed(func(x *safetensors.Tensor) {
			x.Shape = append([]int{1}, x.Shape...)
		})), ts[3].Name, models.ErrWeights},
		"integer weights": {write(changed(func(x *safetensors.Tensor) { x.DType = quant.I32 })), "I32", models.ErrWeights},
		"truncated": {func(t *testing.T) string {
			dir := write(ts)(t)
			path := filepath.Join(dir, "model.safetensors")
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, info.Size()-100); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "model.safetensors", nil},
		"broken tokenizer": {func(t *testing.T) string {
			dir := write(ts)(t)
			if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(`{"model": 3}`), 0o600); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "tokenizer", nil},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Open(c.dir(t))
			if err == nil {
				m.Close()
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), c.want) || (c.is != nil && !errors.Is(err, c.is)) {
				t.Errorf("error %q, want one with %q that is %v", err, c.want, c.is)
			}
		})
	}
}
