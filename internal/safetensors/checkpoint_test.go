package safetensors_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/safetensors"
)

// shards writes files that each hold scalars, named and numbered from 0, and
// returns their folder.
func shards(t *testing.T, files map[string][]string) string {
	t.Helper()
	dir := t.TempDir()
	for file, names := range files {
		var tensors []safetensors.Tensor
		for i, name := range names {
			tensors = append(tensors, safetensors.FromFloat32s(name, nil, []float32{float32(i)}))
		}
		if err := safetensors.WriteFile(filepath.Join(dir, file), tensors, nil); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// index writes an index that maps tensors to shards.
func index(t *testing.T, dir string, weightMap map[string]string) {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"metadata":   map[string]any{"total_size": 1},
		"weight_map": weightMap,
	})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, safetensors.IndexFile), text)
}

func scalar(t *testing.T, s safetensors.Source, name string) float32 {
	t.Helper()
	v, err := tensor(t, s, name).Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return v[0]
}

func TestOpenDirSingle(t *testing.T) {
	c, err := safetensors.OpenDir(golden.Dir(t, "dream"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n := len(c.Names()); n != 39 { // 3 layers of 12 tensors, and 3
		t.Errorf("%d tensors, want 39", n)
	}
	if x := tensor(t, c, "lm_head.weight"); !slices.Equal(x.Shape, []int{300, 64}) {
		t.Errorf("lm_head has shape %v, want [300 64]", x.Shape)
	}
}

func TestOpenDirShards(t *testing.T) {
	// The tensors of a layer spread over shards, and tensors "d" and "unlisted" that the
	// index does not list.
	dir := shards(t, map[string][]string{
		"1.safetensors": {"a", "c", "d"},
		"2.safetensors": {"unlisted", "b", "c"},
		"3.safetensors": {"a"}, // not listed at all
	})
	index(t, dir, map[string]string{"a": "1.safetensors", "b": "2.safetensors", "c": "2.safetensors"})
	c, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if names := c.Names(); !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("names %q, want a, b, c", names)
	}
	for name, want := range map[string]float32{"a": 0, "b": 1, "c": 2} {
		if got := scalar(t, c, name); got != want {
			t.Errorf("%s = %v, want %v: from another shard?", name, got, want)
		}
	}
	if _, err := c.Tensor("d"); !errors.Is(err, safetensors.ErrNotFound) || !strings.Contains(err.Error(), dir) {
		t.Errorf("tensor outside the index: error %v, want ErrNotFound in %s", err, dir)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	for _, name := range []string{"a", "b"} {
		if _, err := c.Tensor(name); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("after Close: error %v, want fs.ErrClosed", err)
		}
	}
}

func TestOpenDirPrefersSingleFile(t *testing.T) {
	dir := shards(t, map[string][]string{
		safetensors.SingleFile: {"a"},
		"1.safetensors":        {"b"},
	})
	index(t, dir, map[string]string{"b": "1.safetensors"})
	c, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if names := c.Names(); !slices.Equal(names, []string{"a"}) {
		t.Errorf("names %q, want a", names)
	}
}

func TestOpenDirNothing(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, "missing")} {
		_, err := safetensors.OpenDir(d)
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), d+" has neither model.safetensors nor model.safetensors.index.json") {
			t.Errorf("error %v, want fs.ErrNotExist", err)
		}
	}
}

// A broken checkpoint is another error than a missing one, so that a caller does not continue
// to search elsewhere.
func TestOpenDirBroken(t *testing.T) {
	for _, c := range []struct {
		name, file, text, says string
	}{
		{"bad single file", safetensors.SingleFile, "short", "model.safetensors: 5 bytes are too few"},
		{"index not JSON", safetensors.IndexFile, "{", "index.json:1:2: ends in the middle of a value"},
		{"index is a list", safetensors.IndexFile, "[]", "index.json:1:1: the file is an array, want an object"},
		{"empty index", safetensors.IndexFile, "", "index.json:1:1: is empty, want JSON"},
		{"map is null", safetensors.IndexFile, `{"weight_map":null}`, "index.json:1:15: weight_map is null, want an object"},
		{"data after the index", safetensors.IndexFile, `{"weight_map":{}}}`, "index.json:1:18: '}' follows the end of the value"},
		{"no map", safetensors.IndexFile, `{"metadata":{}}`, "index.json: weight_map is missing"},
		{"map is a list", safetensors.IndexFile, `{"weight_map":[]}`, "index.json:1:15: weight_map is an array, want an object"},
		{"shard is a number", safetensors.IndexFile, `{"weight_map":{"a":1}}`, `index.json:1:20: weight_map: "a" is 1, want a string`},
		{"shard is null", safetensors.IndexFile, `{"weight_map":{"a":null}}`, `index.json:1:20: weight_map: "a" is null, want a string`},
		{"tensor twice", safetensors.IndexFile, `{"weight_map":{"a":"1.safetensors","a":"2.safetensors"}}`, `index.json:1:36: weight_map: "a" comes twice`},
		{"shard missing", safetensors.IndexFile, `{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}`, "index.json: lists shard 2.safetensors, which is missing"},
		{"tensor missing", safetensors.IndexFile, `{"weight_map":{"a":"1.safetensors","z":"1.safetensors"}}`, `index.json: lists tensor "z" in 1.safetensors, which lacks it`},
		{"shard is a folder", safetensors.IndexFile, `{"weight_map":{"a":"."}}`, "is a directory, want a regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := shards(t, map[string][]string{"1.safetensors": {"a"}})
			write(t, filepath.Join(dir, c.file), []byte(c.text))
			_, err := safetensors.OpenDir(dir)
			if err == nil || !strings.HasPrefix(err.Error(), "safetensors: "+dir) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q", err, c.says)
			}
			if errors.Is(err, fs.ErrNotExist) {
				t.Errorf("error %v is fs.ErrNotExist", err)
			}
		})
	}
}

// An index must not reach files outside its folder.
func TestOpenDirShardNames(t *testing.T) {
	outside := shards(t, map[string][]string{"1.safetensors": {"a"}})
	dir := filepath.Join(outside, "model")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"../1.safetensors", `..\1.safetensors`, "..", "", "/etc/passwd", "sub/1.safetensors",
		"./1.safetensors", filepath.Join(outside, "1.safetensors"),
	} {
		index(t, dir, map[string]string{"a": name})
		_, err := safetensors.OpenDir(dir)
		if err == nil || !strings.Contains(err.Error(), "is not a plain file name") {
			t.Errorf("shard %q: error %v, want a refusal", name, err)
		}
	}
}
