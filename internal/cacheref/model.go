package cacheref

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/safetensors"
)

// Model is a small LLaDA or Dream.
type Model struct {
	Vocab  int
	MaskID int32

	heads, kvHeads, headDim int
	theta, eps              float64
	embed                   [][]float64 // [token][width]
	layers                  []layer
	norm                    []float64
	vocabulary              linear
}

type layer struct {
	attentionNorm, feedForwardNorm []float64
	q, k, v, out, gate, up, down   linear
}

// linear is y = xW + bias.
type linear struct {
	weight [][]float64 // [in][out]
	bias   []float64   // nil is none
}

// LLaDA returns the model in testdata/llada.
func LLaDA(t testing.TB) *Model {
	t.Helper()
	var c struct {
		VocabSize  int     `json:"vocab_size"`
		MaskID     int32   `json:"mask_token_id"`
		Width      int     `json:"d_model"`
		Heads      int     `json:"n_heads"`
		KVHeads    int     `json:"n_kv_heads"`
		Layers     int     `json:"n_layers"`
		RopeTheta  float64 `json:"rope_theta"`
		RMSNormEps float64 `json:"rms_norm_eps"`
	}
	load := open(t, "llada", &c)
	const root = "model.transformer."
	m := &Model{
		Vocab: c.VocabSize, MaskID: c.MaskID, heads: c.Heads, kvHeads: c.KVHeads, headDim: c.Width / c.Heads,
		theta: c.RopeTheta, eps: c.RMSNormEps,
		embed: load.matrix(root + "wte.weight"), norm: load.vector(root + "ln_f.weight"), vocabulary: load.linear(root + "ff_out"),
	}
	for i := range c.Layers {
		p := fmt.Sprintf("%sblocks.%d.", root, i)
		m.layers = append(m.layers, layer{
			attentionNorm: load.vector(p + "attn_norm.weight"), feedForwardNorm: load.vector(p + "ff_norm.weight"),
			q: load.linear(p + "q_proj"), k: load.linear(p + "k_proj"), v: load.linear(p + "v_proj"), out: load.linear(p + "attn_out"),
			gate: load.linear(p + "ff_proj"), up: load.linear(p + "up_proj"), down: load.linear(p + "ff_out"),
		})
	}
	return m
}

// Dream returns the model in testdata/dream.
func Dream(t testing.TB) *Model {
	t.Helper()
	var c struct {
		VocabSize  int     `json:"vocab_size"`
		MaskID     int32   `json:"mask_token_id"`
		Width      int     `json:"hidden_size"`
		Heads      int     `json:"num_attention_heads"`
		KVHeads    int     `json:"num_key_value_heads"`
		Layers     int     `json:"num_hidden_layers"`
		RopeTheta  float64 `json:"rope_theta"`
		RMSNormEps float64 `json:"rms_norm_eps"`
	}
	load := open(t, "dream", &c)
	m := &Model{
		Vocab: c.VocabSize, MaskID: c.MaskID, heads: c.Heads, kvHeads: c.KVHeads, headDim: c.Width / c.Heads,
		theta: c.RopeTheta, eps: c.RMSNormEps,
		embed: load.matrix("model.embed_tokens.weight"), norm: load.vector("model.norm.weight"), vocabulary: load.linear("lm_head"),
	}
	for i := range c.Layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		m.layers = append(m.layers, layer{
			attentionNorm: load.vector(p + "input_layernorm.weight"), feedForwardNorm: load.vector(p + "post_attention_layernorm.weight"),
			q: load.biased(p + "self_attn.q_proj"), k: load.biased(p + "self_attn.k_proj"), v: load.biased(p + "self_attn.v_proj"),
			out:  load.linear(p + "self_attn.o_proj"),
			gate: load.linear(p + "mlp.gate_proj"), up: load.linear(p + "mlp.up_proj"), down: load.linear(p + "mlp.down_proj"),
		})
	}
	return m
}

// weights reads tensors, and fails the test without them.
type weights struct {
	t    testing.TB
	file *safetensors.Checkpoint
}

// open reads testdata/name/config.json into config and opens the weights.
func open(t testing.TB, name string, config any) weights {
	t.Helper()
	dir := golden.Dir(t, name)
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, config); err != nil {
		t.Fatal(err)
	}
	file, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return weights{t, file}
}

func (w weights) matrix(name string) [][]float64 {
	w.t.Helper()
	tensor, err := w.file.Tensor(name)
	if err != nil {
		w.t.Fatal(err)
	}
	values, err := tensor.Float32s()
	if err != nil {
		w.t.Fatal(err)
	}
	cols := tensor.Shape[len(tensor.Shape)-1]
	rows := make([][]float64, len(values)/cols)
	for i := range rows {
		for _, x := range values[i*cols:][:cols] {
			rows[i] = append(rows[i], float64(x))
		}
	}
	return rows
}

func (w weights) vector(name string) []float64 {
	w.t.Helper()
	return w.matrix(name)[0]
}

// linear transposes the weight, which a file has as [out][in].
func (w weights) linear(path string) linear {
	w.t.Helper()
	rows := w.matrix(path + ".weight")
	weight := make([][]float64, len(rows[0]))
	for i := range weight {
		for _, row := range rows {
			weight[i] = append(weight[i], row[i])
		}
	}
	return linear{weight: weight}
}

func (w weights) biased(path string) linear {
	w.t.Helper()
	l := w.linear(path)
	l.bias = w.vector(path + ".bias")
	return l
}

func (l linear) apply(x []float64) []float64 {
	y := make([]float64, len(l.weight[0]))
	copy(y, l.bias)
	for i, row := range l.weight {
		for j, w := range row {
			y[j] += x[i] * w
		}
	}
	return y
}

func (m *Model) rmsNorm(x, weight []float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+m.eps)
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * scale * weight[i]
	}
	return y
}

// rotate applies the rotation of a position to every head of x, in place.
func (m *Model) rotate(x []float64, position int) {
	half := m.headDim / 2
	for i := range half {
		sin, cos := math.Sincos(float64(position) * math.Pow(m.theta, -float64(i)/float64(half)))
		for first := 0; first < len(x); first += m.headDim {
			a, b := x[first+i], x[first+half+i]
			x[first+i], x[first+half+i] = a*cos-b*sin, b*cos+a*sin
		}
	}
}

// feedForward returns Down(silu(Gate(x)) * Up(x)).
func (l *layer) feedForward(x []float64) []float64 {
	gate, up := l.gate.apply(x), l.up.apply(x)
	for i, g := range gate {
		gate[i] = g / (1 + math.Exp(-g)) * up[i]
	}
	return l.down.apply(gate)
}

// add adds y to x in place.
func add(x, y []float64) {
	for i := range x {
		x[i] += y[i]
	}
}
