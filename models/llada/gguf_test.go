package llada

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/gguf/gguftest"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/modeltest"
)

func TestGGUFLogits(t *testing.T) {
	modeltest.GGUFLogitsEqualReference(t, "llada", func(path string) (modeltest.Model, error) { return Open(path) })
}

func TestGGUFInt8(t *testing.T) {
	modeltest.GGUFInt8Error(t, "llada", func(path string) (modeltest.Builder, error) { return Open(path) })
}

func TestGGUFGeneration(t *testing.T) {
	files := modeltest.GGUFFiles(t, "llada-tiny.F32.gguf")
	if len(files) == 0 {
		t.Fatal("no files")
	}
	for _, path := range files {
		m := modeltest.Opened(Open(path))(t)
		generationEqualsReference(t, m)
		modeltest.LogitsEqualReference(t, m, golden.Open(t, "llada/expected"))
		if got, want := m.Config(), openGolden(t).Config(); !sameConfig(got, want) {
			t.Errorf("configuration %+v, want %+v", got, want)
		}
	}
}

// sameConfig compares numbers that GGUF files have as float32 as such.
func sameConfig(a, b models.Config) bool {
	if float32(a.Eps) != float32(b.Eps) || float32(a.RopeTheta) != float32(b.RopeTheta) {
		return false
	}
	a.Eps, a.RopeTheta = b.Eps, b.RopeTheta
	return a == b
}

// TestGGUFChat: a conversation is in the form of the file's template.
func TestGGUFChat(t *testing.T) {
	m := modeltest.Opened(Open(filepath.Join(golden.Dir(t, "gguf"), "llada-a.Q4_K_M.gguf")))(t)
	ids, err := m.EncodeChat([]models.Message{{Role: "user", Content: " hi "}})
	if err != nil {
		t.Fatal(err)
	}
	want, err := m.Encode("<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ids, want) {
		t.Errorf("ids  %v\nwant %v", ids, want)
	}
}

// diffuse are the keys of the tiny model in a file of diffuse-cpp.
var diffuse = []gguftest.Key{
	{Name: "general.architecture", Value: "diffuse"}, {Name: "diffuse.model_type", Value: "llada"},
	{Name: "diffuse.block_count", Value: uint32(3)}, {Name: "diffuse.attention.head_count", Value: uint32(4)},
	{Name: "diffuse.attention.head_count_kv", Value: uint32(4)}, {Name: "diffuse.embedding_length", Value: uint32(64)},
	{Name: "diffuse.feed_forward_length", Value: uint32(176)}, {Name: "diffuse.context_length", Value: uint32(512)},
	{Name: "diffuse.vocab_size", Value: uint32(320)}, {Name: "diffuse.rope.freq_base", Value: float32(500000)},
	{Name: "diffuse.attention.layer_norm_rms_epsilon", Value: float32(1e-5)}, {Name: "diffuse.mask_token_id", Value: uint32(319)},
	{Name: "diffuse.eos_token_id", Value: uint32(318)},
}

func TestGGUFDiffuse(t *testing.T) {
	path := modeltest.GGUFFile(t, diffuse, modeltest.GGUFTensors(t, "llada", ggufForm.Names))
	m, want := modeltest.Opened(Open(path))(t), openGolden(t)
	if got := m.Config(); !sameConfig(got, want.Config()) {
		t.Errorf("configuration %+v, want %+v", got, want.Config())
	}
	modeltest.LogitsEqualReference(t, m, golden.Open(t, "llada/expected"))
	if _, err := m.Encode("text"); !errors.Is(err, models.ErrNoTokenizer) {
		t.Errorf("Encode: %v, want ErrNoTokenizer", err)
	}
}

// TestGGUFTokenizerOfFolder: a file without a tokenizer has that of its folder.
func TestGGUFTokenizerOfFolder(t *testing.T) {
	path := modeltest.GGUFFile(t, diffuse, modeltest.GGUFTensors(t, "llada", ggufForm.Names))
	text, err := os.ReadFile(filepath.Join(golden.Dir(t, "tokenizer"), "llada.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "tokenizer.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	ids, err := modeltest.Opened(Open(path))(t).Encode("hello")
	if err != nil || len(ids) == 0 {
		t.Errorf("Encode: %v, %v", ids, err)
	}
}

// TestGGUFSplit: a model in two files is that in one.
func TestGGUFSplit(t *testing.T) {
	tensors := modeltest.GGUFTensors(t, "llada", ggufForm.Names)
	part := func(number uint16) []gguftest.Key {
		return []gguftest.Key{{Name: "split.no", Value: number}, {Name: "split.count", Value: uint16(2)}, {Name: "split.tensors.count", Value: int32(len(tensors))}}
	}
	dir, half := t.TempDir(), len(tensors)/2
	first := filepath.Join(dir, "m-00001-of-00002.gguf")
	for path, data := range map[string][]byte{
		first: gguftest.File(append(part(0), diffuse...), tensors[:half]), filepath.Join(dir, "m-00002-of-00002.gguf"): gguftest.File(part(1), tensors[half:]),
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	modeltest.LogitsEqualReference(t, modeltest.Opened(Open(first))(t), golden.Open(t, "llada/expected"))
}

// TestGGUFTied: without output.weight the head is the table of embeddings.
func TestGGUFTied(t *testing.T) {
	tensors := modeltest.GGUFTensors(t, "llada", ggufForm.Names)
	untied := slices.IndexFunc(tensors, func(x gguftest.Tensor) bool { return x.Name == "output.weight" })
	table := slices.IndexFunc(tensors, func(x gguftest.Tensor) bool { return x.Name == "token_embd.weight" })
	tensors[untied].Data = tensors[table].Data
	ids := [][]int32{{1, 2, 3, 319}}
	want, err := modeltest.Opened(Open(modeltest.GGUFFile(t, diffuse, tensors)))(t).Logits(t.Context(), ids, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := modeltest.Opened(Open(modeltest.GGUFFile(t, diffuse, slices.Delete(tensors, untied, untied+1))))(t)
	got, err := m.Logits(t.Context(), ids, nil)
	if err != nil || !m.Config().TiedHead {
		t.Fatal(err, m.Config())
	}
	tol.SameBits(t, "logits", got, want)
}

// TestGGUFErrors: metadata and tensors that do not fit are errors that name the file and
// the key or the tensor.
func TestGGUFErrors(t *testing.T) {
	tensors := modeltest.GGUFTensors(t, "llada", ggufForm.Names)
	set := func(name string, value any) []gguftest.Key {
		return append(modeltest.Without(diffuse, name), gguftest.Key{Name: name, Value: value})
	}
	for _, c := range []struct {
		keys []gguftest.Key
		want string
	}{
		{nil, `general.architecture is "", which is not supported; want "llada"`},
		{set("general.architecture", "llama"), `general.architecture is "llama", which is not supported; want "llada"`},
		{set("diffuse.model_type", "llada2_moe"), `diffuse.model_type is "llada2_moe", which is not supported; want "llada"`},
		{set("general.architecture", true), `key "general.architecture" is of type bool, want string`},
		{modeltest.Without(diffuse, "diffuse.block_count"), "diffuse.block_count is missing"},
		{modeltest.Without(diffuse, "diffuse.context_length"), "diffuse.context_length is missing"},
		{modeltest.Without(diffuse, "diffuse.attention.layer_norm_rms_epsilon"), "diffuse.attention.layer_norm_rms_epsilon is 0, want a positive number"},
		{modeltest.Without(diffuse, "diffuse.rope.freq_base"), "diffuse.rope.freq_base is 0, want a positive number"},
		{modeltest.Without(diffuse, "diffuse.mask_token_id"), "diffuse.mask_token_id is missing"}, // the published one is beyond the vocabulary
		{set("diffuse.block_count", uint64(1<<63)), `key "diffuse.block_count" is 9223372036854775808, want at most`},
		{set("diffuse.block_count", uint32(4097)), "diffuse.block_count is 4097, want 1 to 4096"},
		{set("diffuse.block_count", "3"), `key "diffuse.block_count" is of type string, want an integer`},
		{set("diffuse.embedding_length", int64(1<<40)), "diffuse.embedding_length is 1099511627776, want 0 to 4194304"},
		{set("diffuse.attention.head_count", uint32(5)), "diffuse.attention.head_count is 5, which is not a multiple of diffuse.attention.head_count_kv 4"},
		{set("diffuse.mask_token_id", uint32(320)), "diffuse.mask_token_id is 320, want 0 to 319"},
		{set("diffuse.rope.freq_base", float32(-1)), "diffuse.rope.freq_base is -1, want a positive number"},
		{set("diffuse.rope.dimension_count", uint32(8)), "diffuse.rope.dimension_count is 8, which is not supported; want 16"},
		{set("diffuse.rope.scaling.type", "yarn"), `diffuse.rope.scaling.type is "yarn", which is not supported; want "none"`},
		{set("diffuse.expert_count", uint32(8)), "diffuse.expert_count is 8, which is not supported; want 0"},
		{set("diffusion.shift_logits", true), "diffusion.shift_logits is true, which is not supported; want false"},
	} {
		path := modeltest.GGUFFile(t, c.keys, tensors)
		if m, err := Open(path); m != nil || !errors.Is(err, models.ErrConfig) || !strings.Contains(err.Error(), path+": "+c.want) {
			t.Errorf("error %v\nwant  %s: %s", err, path, c.want)
		}
	}
	for _, c := range []struct {
		keys    []gguftest.Key
		tensors []gguftest.Tensor
		want    string
	}{
		{diffuse, append(slices.Clone(tensors), gguftest.Tensor{Name: "rope_freqs.weight", Shape: []int{1}, Data: make([]byte, 4)}), `tensor "rope_freqs.weight" has no place in this architecture`},
		{diffuse, slices.DeleteFunc(slices.Clone(tensors), func(x gguftest.Tensor) bool { return x.Name == "blk.1.ffn_up.weight" }), `no tensor "blk.1.ffn_up.weight"`},
		{set("diffuse.vocab_size", uint32(321)), tensors, `tensor "token_embd.weight" has shape [320 64], the config calls for [321 64]`},
	} {
		path := modeltest.GGUFFile(t, c.keys, c.tensors)
		if m, err := Open(path); m != nil || !errors.Is(err, models.ErrWeights) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v\nwant  %s", err, c.want)
		}
	}
}
