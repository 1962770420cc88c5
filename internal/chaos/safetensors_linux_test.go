package chaos

import (
	"encoding/binary"
	"encoding/json"
	"testing"
)

// header returns the JSON at the beginning of a safetensors file, and what follows it.
func header(t *testing.T, file string) (text, data string) {
	t.Helper()
	n := binary.LittleEndian.Uint64([]byte(file))
	return file[8 : 8+n], file[8+n:]
}

// withHeader puts a header in front of data.
func withHeader(text, data string) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(text)))) + text + data
}

// weightIndex returns an index that finds every tensor of the file in part.safetensors.
func weightIndex(t *testing.T, path string) string {
	t.Helper()
	text, _ := header(t, read(t, path))
	var tensors map[string]json.RawMessage
	must(t, json.Unmarshal([]byte(text), &tensors))
	delete(tensors, "__metadata__")
	where := map[string]string{}
	for name := range tensors {
		where[name] = "part.safetensors"
	}
	index, err := json.Marshal(map[string]any{"metadata": map[string]int{}, "weight_map": where})
	must(t, err)
	return string(index)
}
