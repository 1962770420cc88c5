package chaos

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
)

// ggufCopy copies a GGUF file of testdata, so that it can be damaged.
func ggufCopy(t *testing.T, name string) (path, file string) {
	t.Helper()
	file = read(t, filepath.Join(golden.Dir(t, "gguf"), name))
	path = filepath.Join(t.TempDir(), name)
	write(t, path, file)
	return path, file
}

// ggufFiles are a file of quantized weights and one of floats, both with a tokenizer.
var ggufFiles = []string{"llada-a.Q4_K_M.gguf", "llada-tiny.F32.gguf"}

// TestTruncatedGGUF: a GGUF file that was cut before the start is refused by name, wherever
// it was cut.
func TestTruncatedGGUF(t *testing.T) {
	for k, name := range ggufFiles[:pick(1, 2)] {
		path, file := ggufCopy(t, name)
		args := [][]string{
			append([]string{"generate", "--model", path, "--prompt", "a"}, quick...), {"info", "--model", path},
			{"tokenize", "--model", path, "--text", "a"}, {"logits", "--model", path, "--ids", "1,2", "--out", filepath.Join(t.TempDir(), "logits")},
		}
		ends := []int{0, 1, 3, 4, 5, 8, 16, 23, 24, 25, len(file) / 4, len(file) / 2, len(file) - 32, len(file) - 1}
		rng := rand.New(rand.NewPCG(uint64(k), 4))
		for range pick(1, 60) {
			ends = append(ends, rng.IntN(len(file)))
		}
		for i, end := range ends {
			write(t, path, file[:end])
			c := pulsecol(args[i%len(args)]...)
			c.note = fmt.Sprintf("%s cut to %d bytes", name, end)
			trials.add("GGUF files cut before the start")
			c.fails(t, path)
		}
	}
}

// TestGGUFCutWhileMapped: a GGUF file that is cut while a command reads it ends it with one
// line that names it, unless it was over before.
func TestGGUFCutWhileMapped(t *testing.T) {
	for _, name := range ggufFiles[:pick(1, 2)] {
		path, file := ggufCopy(t, name)
		long := []string{"--gen-length", "64", "--steps", "64"}
		results := filepath.Join(t.TempDir(), "r.jsonl")
		commands := [][]string{
			append([]string{"generate", "--model", path, "--prompt", "ab", "--block-length", "64"}, long...),
			append([]string{"generate", "--model", path, "--prompt-ids", "5,6,7", "--block-length", "8", "--cache", "dual", "--json"}, long...),
			append([]string{"generate", "--model", path, "--prompt", "ab", "--block-length", "8", "--sparsity", "0.5", "--cache", "prefix"}, long...),
			{"eval", "--model", path, "--task", "lists@80", "--samples", "4", "--results", results, "--gen-length", "16", "--block-length", "16", "--steps", "16"},
		}
		cutWhileMapped(t, path, file, results, commands[:pick(1, len(commands))], "GGUF files cut while mapped")
	}
}

// TestBadGGUF: GGUF files with something wrong.
func TestBadGGUF(t *testing.T) {
	for k, name := range append(ggufFiles, "dream-tiny.Q4_K_M.gguf") {
		_, file := ggufCopy(t, name)
		seeded(pick(4, 250), func(seed int) {
			rng := rand.New(rand.NewPCG(uint64(seed), 400+uint64(k)))
			scratch(t, func(dir string) {
				path := filepath.Join(dir, name)
				write(t, path, badGGUF(rng, file))
				c := pulsecol("generate", "--model", path, "--prompt-ids", "1,2,3", "--steps", "1")
				switch seed % 4 {
				case 0:
					c = pulsecol("info", "--model", path)
				case 1:
					c = pulsecol("tokenize", "--model", path, "--text", "Ab 12 é")
				}
				c.note = fmt.Sprintf("%s, seed %d", name, seed)
				trials.add("bad GGUF files")
				c.bad(t, path, dir)
			})
		})
	}
}

// badGGUF returns a file with something wrong, most often among the metadata and the list of
// tensors.
func badGGUF(rng *rand.Rand, file string) string {
	numbers := []uint64{0, 1, 2, 3, 8, 31, 32, 255, 1 << 16, 1 << 31, 1 << 32, 1 << 62, 1 << 63, 1<<64 - 1, uint64(len(file)), uint64(len(file)) + 1}
	head := min(len(file), 16<<10)
	b := []byte(file)
	switch rng.IntN(5) {
	case 0: // a number of the header
		binary.LittleEndian.PutUint64(b[oneOf(rng, []int{4, 8, 16}):], oneOf(rng, numbers))
	case 1: // a number anywhere
		binary.LittleEndian.PutUint64(b[rng.IntN(head-8):], oneOf(rng, numbers))
	case 2:
		for range 1 + rng.IntN(8) {
			b[rng.IntN(head)] ^= 1 << rng.IntN(8)
		}
	case 3: // weights
		for range 1 + rng.IntN(100) {
			b[len(b)/2+rng.IntN(len(b)/2)] ^= 1 << rng.IntN(8)
		}
	default:
		return mutated(rng, file[:head]) + file[head:]
	}
	return string(b)
}
