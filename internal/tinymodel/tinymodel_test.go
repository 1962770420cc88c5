package tinymodel

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pulsecol/pulsecol/internal/tokenizer"
)

// model is one of the two and what the tests need of its config.json.
type model struct {
	name     string
	files    fs.FS
	weights  []byte
	expected string // file of reference outputs
	tensors  func(config) map[string][]int
	config   config
	settings settings
}

type config struct {
	Width, Layers, Heads, KVHeads, Hidden, Vocabulary, MaxLength int
	Mask                                                         int32
}

// settings are the sampler settings of generation_config.json.
type settings struct {
	GenLength    int     `json:"gen_length"`
	BlockLength  int     `json:"block_length"`
	MaxNewTokens int     `json:"max_new_tokens"`
	Steps        int     `json:"steps"`
	Alg          string  `json:"alg"`
	Eps          float64 `json:"eps"`
}

// length is the number of generated tokens.
func (s settings) length() int { return max(s.GenLength, s.MaxNewTokens) }

func forEachModel(t *testing.T, test func(*testing.T, model)) {
	for _, m := range []model{
		{name: "llada", files: FS(), weights: Weights(), expected: "expected.json", tensors: lladaTensors},
		{name: "dream", files: DreamFS(), weights: DreamWeights(), expected: "expected_dream.json", tensors: dreamTensors},
	} {
		t.Run(m.name, func(t *testing.T) {
			readJSON(t, m.files, "generation_config.json", &m.settings)
			var fields map[string]any
			readJSON(t, m.files, "config.json", &fields)
			size := func(llada, dream string) int {
				v, ok := fields[map[string]string{"llada": llada, "dream": dream}[m.name]].(float64)
				if !ok {
					t.Fatalf("config.json lacks %s or %s", llada, dream)
				}
				return int(v)
			}
			m.config = config{
				Width: size("d_model", "hidden_size"), Layers: size("n_layers", "num_hidden_layers"),
				Heads: size("n_heads", "num_attention_heads"), KVHeads: size("n_kv_heads", "num_key_value_heads"),
				Hidden: size("mlp_hidden_size", "intermediate_size"), Vocabulary: size("embedding_size", "vocab_size"),
				MaxLength: size("max_sequence_length", "max_position_embeddings"),
				Mask:      int32(size("mask_token_id", "mask_token_id")),
			}
			test(t, m)
		})
	}
}

func readJSON(t *testing.T, fsys fs.FS, name string, v any) {
	t.Helper()
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// lladaTensors are the shapes in a LLaDA checkpoint of this configuration.
func lladaTensors(c config) map[string][]int {
	shapes := map[string][]int{
		"model.transformer.wte.weight":    {c.Vocabulary, c.Width},
		"model.transformer.ln_f.weight":   {c.Width},
		"model.transformer.ff_out.weight": {c.Vocabulary, c.Width},
	}
	for i := range c.Layers {
		for name, shape := range map[string][]int{
			"attn_norm": {c.Width}, "ff_norm": {c.Width},
			"q_proj": {c.Width, c.Width}, "k_proj": {c.Width, c.Width}, "v_proj": {c.Width, c.Width},
			"attn_out": {c.Width, c.Width},
			"ff_proj":  {c.Hidden, c.Width}, "up_proj": {c.Hidden, c.Width}, "ff_out": {c.Width, c.Hidden},
		} {
			shapes[fmt.Sprintf("model.transformer.blocks.%d.%s.weight", i, name)] = shape
		}
	}
	return shapes
}

// dreamTensors are the shapes in a Dream checkpoint of this configuration.
func dreamTensors(c config) map[string][]int {
	shapes := map[string][]int{
		"model.embed_tokens.weight": {c.Vocabulary, c.Width},
		"model.norm.weight":         {c.Width},
		"lm_head.weight":            {c.Vocabulary, c.Width},
	}
	kv := c.Width / c.Heads * c.KVHeads
	for i := range c.Layers {
		for name, shape := range map[string][]int{
			"input_layernorm.weight": {c.Width}, "post_attention_layernorm.weight": {c.Width},
			"self_attn.q_proj.weight": {c.Width, c.Width}, "self_attn.q_proj.bias": {c.Width},
			"self_attn.k_proj.weight": {kv, c.Width}, "self_attn.k_proj.bias": {kv},
			"self_attn.v_proj.weight": {kv, c.Width}, "self_attn.v_proj.bias": {kv},
			"self_attn.o_proj.weight": {c.Width, c.Width},
			"mlp.gate_proj.weight":    {c.Hidden, c.Width}, "mlp.up_proj.weight": {c.Hidden, c.Width},
			"mlp.down_proj.weight": {c.Width, c.Hidden},
		} {
			shapes[fmt.Sprintf("model.layers.%d.%s", i, name)] = shape
		}
	}
	return shapes
}

func TestWeightsAreTheTensorsOfTheConfig(t *testing.T) { forEachModel(t, testWeights) }

func testWeights(t *testing.T, m model) {
	c, file := m.config, m.weights
	if len(file) > 8_000_000 {
		t.Errorf("%d bytes of weights, want at most 8 MB", len(file))
	}
	size := binary.LittleEndian.Uint64(file)
	if size > uint64(len(file)-8) {
		t.Fatalf("header of %d bytes in a file of %d", size, len(file))
	}
	header, data := file[8:8+size], file[8+size:]
	var tensors map[string]struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(header, &tensors); err != nil {
		t.Fatal(err)
	}
	delete(tensors, "__metadata__")
	got := map[string][]int{}
	for name, tensor := range tensors {
		got[name] = tensor.Shape
		if tensor.DType != "BF16" {
			t.Errorf("%s is %s, want BF16", name, tensor.DType)
		}
	}
	if diff := cmp.Diff(m.tensors(c), got); diff != "" {
		t.Errorf("tensors (-want +got):\n%s", diff)
	}
	parameters := 0
	for _, shape := range got {
		n := 1
		for _, d := range shape {
			n *= d
		}
		parameters += n
	}
	if len(data) != 2*parameters {
		t.Errorf("%d bytes of data for %d parameters of 2 bytes", len(data), parameters)
	}
	if c.Width/c.Heads != 64 {
		t.Errorf("head dimension %d, want 64", c.Width/c.Heads)
	}
	for i := 0; i+1 < len(data); i += 2 {
		if binary.LittleEndian.Uint16(data[i:])&0x7f80 == 0x7f80 {
			t.Fatalf("value %d is not finite", i/2)
		}
	}
}

func TestLLaDASettingsDivideEvenly(t *testing.T) {
	var s settings
	readJSON(t, FS(), "generation_config.json", &s)
	if s.GenLength <= 0 || s.BlockLength <= 0 || s.GenLength%s.BlockLength != 0 {
		t.Fatalf("gen_length %d is no multiple of block_length %d", s.GenLength, s.BlockLength)
	}
	if blocks := s.GenLength / s.BlockLength; s.Steps%blocks != 0 {
		t.Errorf("steps %d is no multiple of the %d blocks", s.Steps, blocks)
	}
}

func TestFSHasOnlySmallFiles(t *testing.T) { forEachModel(t, testFS) }

func testFS(t *testing.T, m model) {
	names, err := fs.Glob(m.files, "*")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
	if !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	for _, name := range want {
		var object map[string]any
		readJSON(t, m.files, name, &object)
	}
}

// TestModelsShareTheTokenizer holds both models to the one set of questions.
func TestModelsShareTheTokenizer(t *testing.T) {
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		a, errA := fs.ReadFile(FS(), name)
		b, errB := fs.ReadFile(DreamFS(), name)
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s of the two models differ", name)
		}
	}
}

func TestQuestionHidesItsAnswer(t *testing.T) {
	if !strings.HasPrefix(Question, "Text: ") || !strings.HasSuffix(Question, "?\nA:") {
		t.Errorf("question %q has not the form of the training prompts", Question)
	}
	if strings.Count(Question, Answer) != 1 {
		t.Errorf("%q occurs %d times in the question, want once", Answer, strings.Count(Question, Answer))
	}
	if strings.Count(Question, "The magic number for") < 2 {
		t.Error("the question has no second number to confuse the answer with")
	}
}

// generated is what a file of reference outputs has for one prompt.
type generated struct {
	Prompt    string      `json:"prompt"`
	PromptIDs []int32     `json:"prompt_ids"`
	OutputIDs []int32     `json:"output_ids"`
	Text      string      `json:"text"`
	TopIDs    [][]int32   `json:"top_ids"`
	TopLogits [][]float64 `json:"top_logits"`
}

type expected struct {
	Settings settings    `json:"settings"`
	Mask     int32       `json:"mask_id"`
	Cases    []generated `json:"cases"`
	Question generated   `json:"question"`
	PulseCol generated   `json:"question_pulsecol"`
}

// TestTokenizerGivesTheReferenceIDs holds the Go tokenizer to HuggingFace's
// on the files of each model.
func TestTokenizerGivesTheReferenceIDs(t *testing.T) { forEachModel(t, testTokenizer) }

func testTokenizer(t *testing.T, m model) {
	tok, err := tokenizer.Open(m.files)
	if err != nil {
		t.Fatal(err)
	}
	var want expected
	readJSON(t, os.DirFS("testdata"), m.expected, &want)
	want.Question.Prompt = Question
	for _, g := range append(want.Cases, want.Question) {
		ids, err := tok.Encode(g.Prompt)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(g.PromptIDs, ids); diff != "" {
			t.Errorf("ids of %.40q... (-want +got):\n%s", g.Prompt, diff)
		}
		text, err := tok.Decode(g.OutputIDs, true)
		if err != nil {
			t.Fatal(err)
		}
		if text != g.Text {
			t.Errorf("decoded %q, want %q", text, g.Text)
		}
	}
}

// TestExpectedIsConsistent guards the reference outputs that tests of the model
// are held to against a mix-up with another model or other settings.
func TestExpectedIsConsistent(t *testing.T) { forEachModel(t, testExpected) }

func testExpected(t *testing.T, m model) {
	c, s := m.config, m.settings
	var want expected
	readJSON(t, os.DirFS("testdata"), m.expected, &want)
	if want.Settings != s || want.Mask != c.Mask {
		t.Errorf("%s is for settings %+v and mask %d, the model has %+v and %d", m.expected, want.Settings, want.Mask, s, c.Mask)
	}
	if len(want.Cases) != 3 {
		t.Fatalf("%d cases, want 3", len(want.Cases))
	}
	for _, g := range want.Cases {
		if len(g.TopIDs) != s.length() || len(g.TopLogits) != s.length() {
			t.Errorf("%q: best logits at %d and %d positions, want %d", g.Text, len(g.TopIDs), len(g.TopLogits), s.length())
		}
		for i, logits := range g.TopLogits {
			ascending := slices.Clone(logits)
			slices.Reverse(ascending)
			if len(logits) != len(g.TopIDs[i]) || !slices.IsSorted(ascending) {
				t.Errorf("%q: logits %v of ids %v are not in descending order", g.Text, logits, g.TopIDs[i])
			}
		}
	}
	for _, g := range append(want.Cases, want.Question, want.PulseCol) {
		if len(g.OutputIDs) != s.length() {
			t.Errorf("%q: %d generated tokens, want %d", g.Text, len(g.OutputIDs), s.length())
		}
		for _, id := range slices.Concat(g.PromptIDs, g.OutputIDs) {
			if id < 0 || int(id) >= c.Vocabulary || id == c.Mask {
				t.Errorf("%q: id %d is not a token of text", g.Text, id)
			}
		}
		if len(g.PromptIDs)+s.length() > c.MaxLength {
			t.Errorf("%q: prompt of %d tokens leaves no room for the answer", g.Text, len(g.PromptIDs))
		}
	}
	if got := strings.TrimSpace(want.Question.Text); got != Answer {
		t.Errorf("reference answer to Question is %q, want %q", got, Answer)
	}
}
