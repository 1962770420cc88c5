package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pulsecol/pulsecol/internal/infile"
)

// vocabMergesForm turns a tokenizer.json into the files of the older form.
func vocabMergesForm(t testing.TB, name, class string) fstest.MapFS {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testdata, name))
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		AddedTokens []map[string]any `json:"added_tokens"`
		Model       struct {
			Vocab  json.RawMessage
			Merges []string
		}
	}
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	added := map[string]any{}
	decoder := map[string]any{}
	for _, a := range f.AddedTokens {
		added[a["content"].(string)] = a["id"]
		decoder[strconv.Itoa(int(a["id"].(float64)))] = a
		delete(a, "id")
	}
	marshal := func(v any) *fstest.MapFile {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return &fstest.MapFile{Data: data}
	}
	return fstest.MapFS{
		vocabName:  {Data: f.Model.Vocab},
		mergesName: {Data: []byte("#version: 0.2\n" + strings.Join(f.Model.Merges, "\n") + "\n")},
		addedName:  marshal(added),
		configName: marshal(map[string]any{"tokenizer_class": class, "added_tokens_decoder": decoder}),
	}
}

func TestVocabMergesForm(t *testing.T) {
	for _, c := range []struct{ tokenizer, class, cases string }{
		{"qwen.json", "DreamTokenizer", "qwen_fuzz.oracle.json"},
		{"qwen.json", "Qwen2Tokenizer", "qwen.oracle.json"},
		{"added.tokenizer.json", "Qwen2TokenizerFast", "added.oracle.json"},
		{"gpt2.tokenizer.json", "GPT2Tokenizer", "gpt2.oracle.json"},
	} {
		files := vocabMergesForm(t, c.tokenizer, c.class)
		tok, err := Open(files)
		if err != nil {
			t.Fatal(err)
		}
		check(t, tok, readTestdata[golden](t, c.cases))

		delete(files, addedName) // tokenizer_config.json has the same tokens
		files[mergesName].Data = bytes.ReplaceAll(files[mergesName].Data, []byte("\n"), []byte("\r\n"))
		if tok, err = Open(files); err != nil {
			t.Fatal(err)
		}
		check(t, tok, readTestdata[golden](t, c.cases))
	}
}

// vocab.json, merges.txt and added_tokens.json alone are read as Dream's.
func TestVocabMergesWithoutConfig(t *testing.T) {
	files := vocabMergesForm(t, "qwen.json", "GPT2Tokenizer")
	delete(files, configName)
	tok, err := Open(files)
	if err != nil {
		t.Fatal(err)
	}
	check(t, tok, readTestdata[golden](t, "qwen.oracle.json"))
	if id, ok := tok.TokenID("<|mask|>"); !ok || !tok.IsSpecial(id) {
		t.Errorf("<|mask|> is token %d, known %v, special %v; want a special token", id, ok, tok.IsSpecial(id))
	}
}

func TestVocabMergesErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(fstest.MapFS)
		want string
	}{
		{"no merges", func(f fstest.MapFS) { delete(f, mergesName) }, "merges.txt: file does not exist"},
		{"empty vocab", func(f fstest.MapFS) { f[vocabName].Data = nil }, "vocab.json:1:1: is empty"},
		{"vocab of another kind", func(f fstest.MapFS) { f[vocabName].Data = []byte(`["a"]`) }, `vocab.json: want an object of token: id`},
		{"vocab cut off", func(f fstest.MapFS) { f[vocabName].Data = f[vocabName].Data[:1000] }, "vocab.json:1:"},
		{"data after vocab", func(f fstest.MapFS) { f[vocabName].Data = append(f[vocabName].Data, "{}"...) }, "follows the end of the value"},
		{"vocab not UTF-8", func(f fstest.MapFS) { f[vocabName].Data = []byte("{\"\xff\": 1}") }, "vocab.json:1:3: byte 0xff is not valid UTF-8"},
		{"merges not UTF-8", func(f fstest.MapFS) { f[mergesName].Data = []byte("\xff a") }, "merges.txt:1:1: byte 0xff is not valid UTF-8"},
		{"one token", func(f fstest.MapFS) { f[mergesName].Data = []byte("#version: 0.2\n\na\n") }, `merges.txt:3:1: "a" is not two tokens with a space between them`},
		{"three tokens", func(f fstest.MapFS) { f[mergesName].Data = []byte("a b c") }, `merges.txt:1:1: "a b c" is not two`},
		{"unknown merge", func(f fstest.MapFS) { f[mergesName].Data = []byte("q q") }, `merges.txt: merge 0 ("q" with "q"): no token "qq" in the vocabulary`},
		{"config not JSON", func(f fstest.MapFS) { f[configName].Data = []byte(`{`) }, "tokenizer_config.json:1:2: ends in the middle of a value"},
		{"config of another type", func(f fstest.MapFS) { f[configName].Data = []byte("{\n\"tokenizer_class\": 7}") },
			"tokenizer_config.json:2:20: tokenizer_class is 7, want a string"},
		{"vocab id", func(f fstest.MapFS) { f[vocabName].Data = []byte(`{"a": "b"}`) }, `vocab.json: the id of token "a" is not a whole number`},
		{"class", func(f fstest.MapFS) { f[configName].Data = []byte(`{"tokenizer_class": "T5Tokenizer"}`) },
			`tokenizer_config.json: tokenizer_class "T5Tokenizer" is not supported: want one of DreamTokenizer, GPT2Tokenizer, GPT2TokenizerFast, Qwen2Tokenizer, Qwen2TokenizerFast`},
		{"prefix space", func(f fstest.MapFS) {
			f[configName].Data = []byte(`{"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true}`)
		}, "tokenizer_config.json: add_prefix_space true is not supported"},
		{"id of an added token", func(f fstest.MapFS) {
			f[configName].Data = []byte(`{"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {"x": {"content": "<a>"}}}`)
		}, `added_tokens_decoder: id "x" of token "<a>" is not a number`},
		{"the same id twice", func(f fstest.MapFS) {
			delete(f, addedName)
			f[configName].Data = []byte(`{"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {"9999": {"content": "<b>"}, "09999": {"content": "<a>"}}}`)
		}, `added tokens: token "<b>": id 9999 is also the id of token "<a>"`},
		{"added but not described", func(f fstest.MapFS) { f[addedName].Data = []byte(`{"<a>": 9999}`) },
			`added_tokens.json: token "<a>" is not in added_tokens_decoder of tokenizer_config.json`},
		{"added with another id", func(f fstest.MapFS) { f[addedName].Data = []byte(`{"<|mask|>": 9999}`) },
			`added_tokens.json: token "<|mask|>" has id 9999, in tokenizer_config.json it has 3259`},
		{"added not UTF-8", func(f fstest.MapFS) { f[addedName].Data = []byte("\xff") }, "added_tokens.json:1:1: byte 0xff is not valid UTF-8"},
		{"added not JSON", func(f fstest.MapFS) { f[addedName].Data = []byte("7") }, "added_tokens.json: want an object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := vocabMergesForm(t, "qwen.json", "DreamTokenizer")
			c.edit(files)
			_, err := Open(files)
			if err == nil || !strings.HasPrefix(err.Error(), "tokenizer: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if errors.Is(err, ErrNotFound) {
				t.Errorf("error %v is ErrNotFound, but there is a vocab.json", err)
			}
		})
	}
}

func TestOpen(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(testdata, "gpt2.tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	files := vocabMergesForm(t, "qwen.json", "DreamTokenizer")
	files[jsonName] = &fstest.MapFile{Data: data}
	tok, err := Open(files)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tok.Size(), openTestdata(t, "gpt2.tokenizer.json").Size(); got != want {
		t.Errorf("size %d, want the %d of tokenizer.json, which comes before vocab.json", got, want)
	}

	files[jsonName].Data = []byte("{}")
	if _, err := Open(files); err == nil || err.Error() != "tokenizer: tokenizer.json: model is missing" {
		t.Errorf("error %v", err)
	}
	_, err = Open(fstest.MapFS{"config.json": {}})
	if !errors.Is(err, ErrNotFound) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
	if _, err := Open(os.DirFS(filepath.Join(t.TempDir(), "none"))); !errors.Is(err, ErrNotFound) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
	for _, name := range []string{jsonName, vocabName} {
		if _, err := Open(deniedFS(name)); !errors.Is(err, fs.ErrPermission) || !strings.HasPrefix(err.Error(), "tokenizer: ") {
			t.Errorf("error %v, want fs.ErrPermission", err)
		}
	}
	if _, err := Open(fstest.MapFS{jsonName: {Mode: fs.ModeDir}}); err == nil || !strings.HasPrefix(err.Error(), "tokenizer: tokenizer.json is a directory, want") {
		t.Errorf("error %v, want one of a directory", err)
	}
}

func TestFileLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), jsonName)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 5<<30); err != nil { // sparse
		t.Fatal(err)
	}
	want := "tokenizer: " + path + " is 5 GiB, more than the 128 MiB that a tokenizer's file may have"
	if _, err := OpenFile(path); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if _, err := Open(infile.Dir(filepath.Dir(path))); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenFile(filepath.Join(dir, "none.json")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "none.json") {
		t.Errorf("error %v", err)
	}
	path := filepath.Join(dir, "empty.json")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(path); err == nil || err.Error() != "tokenizer: "+path+":1:1: is empty, want JSON" {
		t.Errorf("error %v", err)
	}
}

// deniedFS has one file, which may not be read.
type deniedFS string

func (d deniedFS) Open(name string) (fs.File, error) {
	if name == string(d) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
