package gguf_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/gguf"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/quant"
)

func fileType(t *testing.T, name string) gguf.FileType {
	t.Helper()
	for _, f := range gguf.FileTypes() {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no file type %s", name)
	return gguf.FileType{}
}

// TestFileTypesEqualReference: the types of all tensors are those of files by llama.cpp's
// quantizer, and so is the number of the file type.
func TestFileTypesEqualReference(t *testing.T) {
	var paths []string
	for _, dir := range []string{golden.Dir(t, "gguf"), os.Getenv("PULSECOL_GGUF")} {
		found, err := filepath.Glob(filepath.Join(dir, "*-*.*.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		if dir != "" {
			paths = append(paths, found...)
		}
	}
	tested := 0
	for _, path := range paths {
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		name := strings.Split(filepath.Base(path), ".")[1]
		if name == "vocab" {
			continue
		}
		typ := fileType(t, name)
		if id, _, err := f.Int("general.file_type"); err != nil || id != int64(typ.ID) {
			t.Errorf("%s: file type %d, %v, want %d", path, id, err, typ.ID)
		}
		arch, err := f.Architecture()
		if err != nil {
			t.Fatal(err)
		}
		number := func(key string) int {
			n, _, err := f.Int(arch + "." + key)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		m := gguf.ModelShape{Layers: number("block_count"), QueriesPerKV: number("attention.head_count") / number("attention.head_count_kv")}
		for _, name := range f.Names() {
			x, err := f.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			tested++
			if got := typ.Tensor(name, x.Shape, m); got != x.DType {
				t.Errorf("%s: %s is %v, llama.cpp's %v", path, name, got, x.DType)
			}
		}
	}
	if tested < 80 {
		t.Errorf("%d tensors", tested)
	}
}

// TestFileTypes: rules that the reference files do not show, worked out by hand.
func TestFileTypes(t *testing.T) {
	llada := gguf.ModelShape{Layers: 32, QueriesPerKV: 1}
	dream := gguf.ModelShape{Layers: 28, QueriesPerKV: 7}
	for _, c := range []struct {
		file, tensor string
		cols         int
		m            gguf.ModelShape
		want         quant.DType
	}{
		{"Q4_K_M", "blk.0.attn_v.weight", 4096, llada, quant.Q6_K},
		{"Q4_K_M", "blk.3.ffn_down.weight", 12288, llada, quant.Q6_K},
		{"Q4_K_M", "blk.4.ffn_down.weight", 12288, llada, quant.Q4_K},
		{"Q4_K_M", "blk.6.attn_v.weight", 4096, llada, quant.Q6_K}, // (6-4)%3 == 2
		{"Q4_K_M", "blk.27.attn_v.weight", 4096, llada, quant.Q6_K},
		{"Q4_K_M", "blk.28.attn_v.weight", 4096, llada, quant.Q6_K},
		{"Q4_K_M", "blk.26.attn_v.weight", 4096, llada, quant.Q4_K},
		{"Q4_K_M", "blk.0.attn_q.weight", 4096, llada, quant.Q4_K},
		{"Q4_K_S", "blk.3.attn_v.weight", 4096, llada, quant.Q5_K},
		{"Q4_K_S", "blk.4.attn_v.weight", 4096, llada, quant.Q4_K},
		{"Q4_K_S", "blk.3.ffn_down.weight", 12288, llada, quant.Q5_K},
		{"Q5_K_S", "blk.0.ffn_down.weight", 12288, llada, quant.Q5_K},
		{"Q5_K_S", "output.weight", 4096, llada, quant.Q6_K},
		{"IQ4_XS", "blk.20.attn_v.weight", 3584, dream, quant.Q5_K},
		{"IQ4_XS", "blk.20.attn_v.weight", 4096, llada, quant.IQ4_XS},
		{"IQ4_NL", "blk.3.ffn_down.weight", 4096, llada, quant.Q5_K},
		{"IQ4_NL", "blk.3.ffn_down.weight", 96, llada, quant.Q5_1},
		{"IQ4_XS", "blk.9.ffn_up.weight", 96, llada, quant.IQ4_NL},
		{"Q4_0", "blk.0.ffn_down.weight", 12288, llada, quant.Q4_0},
		{"Q4_0", "blk.0.ffn_down.weight", 176, llada, quant.F16},
		{"Q6_K", "blk.0.ffn_down.weight", 96, llada, quant.Q8_0},
		{"Q6_K", "blk.0.ffn_down.weight", 40, llada, quant.F16},
		{"Q8_0", "output.weight", 4096, llada, quant.Q8_0},
		{"Q4_K_M", "output.weight", 96, llada, quant.Q8_0},
		{"Q4_0", "output.weight", 96, llada, quant.Q8_0}, // Q6_K has no whole blocks of 96
		{"Q4_K_M", "token_embd.weight", 4096, llada, quant.Q4_K},
		{"Q4_K_M", "token_embd.weight", 4096, gguf.ModelShape{Layers: 32, Tied: true}, quant.Q6_K},
		{"BF16", "blk.0.ffn_down.weight", 176, llada, quant.BF16},
		{"F32", "blk.0.ffn_down.weight", 176, llada, quant.F32},
	} {
		if got := fileType(t, c.file).Tensor(c.tensor, []int{8, c.cols}, c.m); got != c.want {
			t.Errorf("%s: %s with rows of %d is %v, want %v", c.file, c.tensor, c.cols, got, c.want)
		}
	}
	for _, name := range []string{"blk.0.attn_norm.weight", "output_norm.weight", "blk.0.attn_q.bias"} {
		if got := fileType(t, "Q4_0").Tensor(name, []int{4096}, dream); got != quant.F32 {
			t.Errorf("%s is %v, want F32", name, got)
		}
	}
}
