//go:build cuda

package cudaop_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/models/dream"
	"github.com/pulsecol/pulsecol/models/llada"
)

// TestModels: the small models, every operator on the GPU, answer as they do on the
// CPU. Their values are bfloat16 there, so this holds for answers they are sure of.
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
	if held := cudaop.Held(); held != 0 {
		t.Errorf("%d bytes held after all sessions closed", held)
	}
}
