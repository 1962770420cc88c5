package tokenizer

import (
	"os"
	"strings"
	"testing"
)

// benchmarkText is the project's own Go source: code and English.
func benchmarkText(b *testing.B) string {
	var text strings.Builder
	for _, name := range []string{"tokenizer.go", "bpe.go", "pretokenize.go", "added.go", "tokenizerjson.go", "vocabmerges.go"} {
		data, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		text.Write(data)
	}
	return text.String()
}

func BenchmarkEncode(b *testing.B) {
	text := benchmarkText(b)
	for _, c := range []struct {
		name string
		warm bool
	}{{"warm", true}, {"cold", false}} {
		b.Run(c.name, func(b *testing.B) {
			tok := openTestdata(b, "qwen.json")
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if !c.warm {
					tok.bpe.cache = newWordCache()
				}
				if _, err := tok.Encode(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncodeLongWord(b *testing.B) {
	tok := openTestdata(b, "qwen.json")
	word := strings.Repeat("internationalization", 1<<20/20)
	b.SetBytes(int64(len(word)))
	for b.Loop() {
		if _, err := tok.Encode(word); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	text := benchmarkText(b)
	tok := openTestdata(b, "qwen.json")
	ids, err := tok.Encode(text)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := tok.Decode(ids, false); err != nil {
			b.Fatal(err)
		}
	}
}
