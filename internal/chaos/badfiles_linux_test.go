package chaos

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
)

// scratch calls use with a new folder, and removes it.
func scratch(t *testing.T, use func(dir string)) {
	dir, err := os.MkdirTemp("", "pulsecol-chaos-")
	if err != nil {
		t.Error(err)
		return
	}
	defer os.RemoveAll(dir)
	use(dir)
}

// TestBadFiles: every file that the command reads, with something wrong. It may accept
// it, or refuse it in one line that names it.
func TestBadFiles(t *testing.T) {
	all := inputs(t)
	for k := range all {
		if all[k].name == "--results" {
			path := filepath.Join(t.TempDir(), "r.jsonl")
			command{args: all[k].args(path)}.succeeds(t)
			all[k].good = read(t, path)
		}
	}
	for k, in := range all {
		if in.name == "model.safetensors" { // see TestBadWeights
			continue
		}
		seeded(pick(1, 220), func(seed int) {
			rng := rand.New(rand.NewPCG(uint64(seed), 100+uint64(k)))
			scratch(t, func(dir string) {
				path := in.prepare(t, dir)
				text := mutated(rng, in.good)
				write(t, path, text)
				c := command{args: in.args(path), note: fmt.Sprintf("%s, seed %d", in.name, seed)}
				if in.model && seed%3 == 0 {
					c.args = []string{"info", "--model", dir}
				}
				c.bad(t, filepath.Base(path), dir)
				kept := text
				if in.out { // but for a line that has no end, which a process that was killed leaves
					kept = text[:strings.LastIndex(text, "\n")+1]
				}
				if now := read(t, path); !strings.HasPrefix(now, kept) || !in.out && now != text {
					t.Errorf("%s: the file was changed from %q to %q", c, shortened(text), shortened(now))
				}
			})
		})
	}
}

// values are how errors name what is wrong by itself: a prompt that is too long, weights
// that give no numbers, an option by its name in the library, a line of the standard
// input.
var values = []string{"a prompt of ", "logit of token", "sampler: steps 1:", "line 1: "}

// bad runs a command whose input may be wrong. If it fails, its line has one of names,
// or the value that is wrong.
func (c command) bad(t *testing.T, names ...string) {
	t.Helper()
	trials.add("bad inputs")
	r := c.run(t)
	switch r.status {
	case success:
		trials.add("bad inputs, accepted")
	case failure, wrongUsage:
		for _, name := range append(names, values...) {
			if name != "" && strings.Contains(r.stderr, name) {
				return
			}
		}
		t.Errorf("%s: %q names none of %.300q", c, shortened(r.stderr), names)
	default:
		t.Errorf("%s: status %d, signal %v: %s", c, r.status, r.signal, shortened(r.stderr))
	}
}

// TestBadWeights: safetensors files with something wrong.
func TestBadWeights(t *testing.T) {
	model := golden.Dir(t, "llada")
	text, data := header(t, read(t, filepath.Join(model, "model.safetensors")))
	seeded(pick(12, 800), func(seed int) {
		rng := rand.New(rand.NewPCG(uint64(seed), 200))
		scratch(t, func(dir string) {
			must(t, os.Symlink(filepath.Join(model, "config.json"), filepath.Join(dir, "config.json")))
			path := filepath.Join(dir, "model.safetensors")
			write(t, path, badWeights(rng, text, data))
			c := pulsecol(append([]string{"generate", "--model", dir, "--prompt-ids", "1,2,3"}, quick...)...)
			if seed%3 == 0 {
				c = pulsecol("info", "--model", dir)
			}
			c.note = fmt.Sprintf("seed %d", seed)
			c.bad(t, path, dir)
		})
	})
}

// badWeights returns a safetensors file of a header and data, with something wrong.
func badWeights(rng *rand.Rand, text, data string) string {
	file := withHeader(text, data)
	numbers := []uint64{0, 1, 2, 7, 8, uint64(len(text) - 1), uint64(len(text) + 1), uint64(len(data)), uint64(len(data)) + 1, uint64(len(file)), 1 << 20, 100_000_001, 1 << 31, 1 << 32, 1 << 62, 1 << 63, 1<<64 - 1}
	switch rng.IntN(6) {
	case 0: // another length of the header
		return string(binary.LittleEndian.AppendUint64(nil, oneOf(rng, numbers))) + file[8:]
	case 1:
		return withHeader(mutated(rng, text), data)
	case 2: // other data
		b := []byte(file)
		for range 1 + rng.IntN(100) {
			b[8+len(text)+rng.IntN(len(data))] ^= 1 << rng.IntN(8)
		}
		return string(b)
	case 3:
		return file + oneOf(rng, oddText)
	}
	var tensors map[string]map[string]any // one member of one tensor
	if err := json.Unmarshal([]byte(text), &tensors); err != nil {
		panic(err) // the header is a good one
	}
	names := make([]string, 0, len(tensors))
	for _, name := range strings.Split(text, `"`) { // in their order
		if _, ok := tensors[name]; ok && name != "__metadata__" {
			names = append(names, name)
		}
	}
	tensor := tensors[oneOf(rng, names)]
	switch rng.IntN(4) {
	case 0:
		tensor["dtype"] = oneOf(rng, []string{"F64", "F16", "BF16", "I8", "U8", "I64", "BOOL", "F8_E4M3", "F32 ", "f32", "", "\x00"})
	case 1:
		tensor["shape"] = []any{oneOf(rng, numbers), oneOf(rng, numbers)}
	case 2:
		tensor["data_offsets"] = []any{oneOf(rng, numbers), oneOf(rng, numbers)}
	case 3:
		other := tensors[oneOf(rng, names)]
		tensor["data_offsets"], other["data_offsets"] = other["data_offsets"], tensor["data_offsets"]
	}
	changed, err := json.Marshal(tensors)
	if err != nil {
		panic(err) // of strings and numbers
	}
	return withHeader(string(changed), data)
}
