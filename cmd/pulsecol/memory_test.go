package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
)

// TestMemoryPredictionIsWithinTenPercent compares info's prediction with the
// peak of the run that it predicts, as the system counted it.
func TestMemoryPredictionIsWithinTenPercent(t *testing.T) {
	if procStatus("VmHWM") == 0 {
		t.Skip("the system does not count memory")
	}
	if raceEnabled {
		t.Skip("the race detector needs memory of its own")
	}
	if cudaop.Available() == nil {
		t.Skip("the run's memory is on the GPU")
	}
	if testing.Short() {
		t.Skip("writes and runs a model of 150 MB")
	}
	large := randomModel(t, 6000)
	for _, c := range []struct {
		name   string
		model  string // "" is the embedded one
		length int
		flags  []string
		run    []string // flags of generate only
	}{
		{"dense", large, 1024, []string{"--gen-length", "64", "--block-length", "32", "--method", "full"}, []string{"--steps", "4"}},
		{"pulsecol", large, 1000, []string{"--gen-length", "64", "--block-length", "32", "--sparsity", "0.8"}, []string{"--steps", "4", "--refreshes", "1"}},
		{"bfloat16", large, 512, []string{"--gen-length", "64", "--block-length", "32", "--precision", "bfloat16"}, []string{"--steps", "4"}},
		{"random", large, 512, []string{"--gen-length", "64", "--block-length", "32", "--random-weights"}, []string{"--steps", "4"}},
		{"cached", large, 1000, []string{"--gen-length", "64", "--block-length", "16", "--sparsity", "0.8", "--cache", "dual"}, []string{"--steps", "8", "--prefill-every", "2"}},
		{"guided", large, 500, []string{"--gen-length", "32", "--cfg-scale", "1"}, []string{"--steps", "2"}},
		{"embedded", "", 400, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.model != "" {
				c.flags = append(c.flags, "--model", c.model)
			}
			var i information
			if err := json.Unmarshal(peak(t, nil, append([]string{"info", "--json", "--length", strconv.Itoa(c.length)}, c.flags...)...), &i); err != nil {
				t.Fatal(err)
			}
			rng, prompt := rand.New(rand.NewPCG(1, 2)), make([]int32, c.length-i.Memory.NewTokens)
			for j := range prompt {
				prompt[j] = rng.Int32N(int32(i.Config.Vocab) - 2)
			}
			var real int64
			peak(t, &real, append(append([]string{"generate", "--json", "--prompt-ids", listed(prompt)}, c.flags...), c.run...)...)
			predicted := i.Memory.Peak
			if i.Memory.RandomPeak > 0 {
				predicted = i.Memory.RandomPeak
			}
			ratio := float64(predicted) / float64(real)
			t.Logf("predicted %s, took %s: %.3f (%+v)", byteSize(predicted), byteSize(real), ratio, i.Memory)
			if ratio < 0.9 || ratio > 1.1 {
				t.Errorf("the prediction is %.3f of what it took", ratio)
			}
		})
	}
}

// TestRandomWeightsPredictTheCheckpoint: for a shape without a checkpoint info predicts the
// memory of a run with the checkpoint.
func TestRandomWeightsPredictTheCheckpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a model of 150 MB")
	}
	model := randomModel(t, 6000)
	predicted := func(args ...string) memoryPrediction {
		var i information
		out, _ := command(t, append([]string{"info", "--json", "--length", "512", "--gen-length", "64", "--model", model}, args...)...)
		if err := json.Unmarshal([]byte(out), &i); err != nil {
			t.Fatal(err)
		}
		return i.Memory
	}
	for _, precision := range []string{"float32", "bfloat16"} {
		real, random := predicted("--precision", precision), predicted("--precision", precision, "--random-weights")
		// The norms are no tensors of random weights.
		if d := real.Weights - random.Weights; d < 0 || d > real.Weights/100 {
			t.Errorf("%s: weights of %d bytes, want %d", precision, random.Weights, real.Weights)
		}
		if random.Workspace != real.Workspace || random.Columns != real.Columns {
			t.Errorf("%s: %+v, want %+v", precision, random, real)
		}
		if random.Peak < real.Weights || random.RandomPeak >= random.Peak || random.RandomWeights == 0 || real.RandomPeak != 0 {
			t.Errorf("%s: %+v and %+v", precision, random, real)
		}
	}
}

// peak runs the command in a process of its own, returns its output and sets most to its
// peak memory.
func peak(t *testing.T, most *int64, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("pulsecol-peak", args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	_, after, _ := strings.Cut(said.String(), "peak ")
	n, err := strconv.ParseInt(strings.TrimSpace(after), 10, 64)
	if err != nil {
		t.Fatalf("said %q", said.String())
	}
	if most != nil {
		*most = n
	}
	return out.Bytes()
}

// randomModel writes a LLaDA of about 150 MB and returns its directory.
func randomModel(t *testing.T, vocab int) string {
	t.Helper()
	const hidden, feedForward, layers, heads = 1024, 3072, 4, 8
	dir := t.TempDir()
	var config map[string]any
	text, err := os.ReadFile(filepath.Join(golden.Dir(t, "llada"), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	for field, v := range map[string]int{
		"d_model": hidden, "n_heads": heads, "n_kv_heads": heads, "n_layers": layers, "mlp_hidden_size": feedForward,
		"vocab_size": vocab, "embedding_size": vocab, "max_sequence_length": 4096,
		"mask_token_id": vocab - 1, "eos_token_id": vocab - 2, "pad_token_id": vocab - 2,
	} {
		config[field] = v
	}
	if text, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}

	// bfloat16 of either sign between 0.0078 and 0.031, the same for all tensors.
	rng := rand.New(rand.NewPCG(3, 4))
	values := make([]byte, 2*max(vocab, feedForward)*hidden)
	for i := 0; i < len(values); i += 2 {
		bits := 0x3C00 | rng.Uint32()&0x80FF
		values[i], values[i+1] = byte(bits), byte(bits>>8)
	}
	var tensors []safetensors.Tensor
	add := func(name string, shape ...int) {
		size := 2
		for _, n := range shape {
			size *= n
		}
		tensors = append(tensors, safetensors.Tensor{
			Info: safetensors.Info{Name: "model.transformer." + name + ".weight", DType: quant.BF16, Shape: shape}, Data: values[:size],
		})
	}
	add("wte", vocab, hidden)
	add("ff_out", vocab, hidden)
	add("ln_f", hidden)
	for i := range layers {
		at := fmt.Sprintf("blocks.%d.", i)
		for _, name := range []string{"q_proj", "k_proj", "v_proj", "attn_out"} {
			add(at+name, hidden, hidden)
		}
		add(at+"attn_norm", hidden)
		add(at+"ff_norm", hidden)
		add(at+"ff_proj", feedForward, hidden)
		add(at+"up_proj", feedForward, hidden)
		add(at+"ff_out", hidden, feedForward)
	}
	if err := safetensors.WriteFile(filepath.Join(dir, safetensors.SingleFile), tensors, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}
