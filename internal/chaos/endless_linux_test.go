package chaos

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// endless is a text that never ends.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[e.at]
		e.at = (e.at + 1) % len(e.text)
	}
	return len(p), nil
}

// endlessTexts never end in different ways: as zeros, without a line's end, with short
// lines that are accepted for a while, in a JSON value, and in nested ones.
var endlessTexts = map[string]string{
	"zeros": "\x00", "one line": "yes ", "lines": "y\n", "JSON strings": `"a",`, "JSON arrays": "[", "JSON objects": `{"prompt":`, "prompts": `{"prompt": "a"}` + "\n",
}

// TestEndlessInput: what reads a stream ends in the first line that is too long or
// wrong, or when the whole is too long.
func TestEndlessInput(t *testing.T) {
	cases := map[string][]string{
		"--prompt -":           append([]string{"generate", "--prompt", "-"}, quick...),
		"--prompts -":          append([]string{"generate", "--prompts", "-"}, quick...),
		"--prompt-file":        append([]string{"generate", "--prompt-file", "/dev/stdin"}, quick...),
		"--prompts":            append([]string{"generate", "--prompts", "/dev/stdin"}, quick...),
		"--chat-template":      append([]string{"generate", "--model", small(t), "--chat", "--prompt", "a", "--chat-template", "/dev/stdin"}, quick...),
		"inspect --prompt":     append([]string{"inspect", "--prompt", "-"}, quick...),
		"--tokenizer":          {"tokenize", "--tokenizer", "/dev/stdin", "--text", "a"},
		"--data of gsm8k":      {"eval", "--task", "gsm8k", "--data", "/dev/stdin"},
		"--data of humaneval":  {"eval", "--task", "humaneval", "--data", "/dev/stdin"},
		"--exemplars":          {"eval", "--task", "gsm8k", "--data", examples(t), "--exemplars", "/dev/stdin"},
		"--results":            {"eval", "--task", "lists@80", "--results", "/dev/stdin"},
		"bench plot --kernels": {"bench", "plot", "--kernels", "/dev/stdin", "--out", t.TempDir()},
		"bench plot --e2e":     {"bench", "plot", "--e2e", "/dev/stdin", "--out", t.TempDir()},
	}
	for name, args := range cases {
		for kind, text := range endlessTexts {
			if !whole && (name != "--prompt -" || len(kind) > 5) { // what reads more takes longer
				continue
			}
			c := pulsecol(args...)
			c.stdin, c.note = &endless{text: text}, "endless "+kind+" on the standard input of "+name
			trials.add("endless inputs")
			c.fails(t)
		}
	}
}

// TestEndlessLines: a conversation and a list of texts have no end; each message is
// answered, and the end of the output ends the command.
func TestEndlessLines(t *testing.T) {
	for _, args := range [][]string{{"tokenize"}, append([]string{"chat"}, quick...)} {
		r, w, err := os.Pipe()
		must(t, err)
		c := pulsecol(args...)
		c.stdin, c.stdout, c.note = &endless{text: `"y"` + "\n"}, w, `yes '"y"' | `
		p := c.start(t)
		must(t, w.Close())
		_, err = io.ReadFull(r, make([]byte, 200))
		must(t, err)
		must(t, r.Close())
		trials.add("endless inputs")
		if got := p.wait(t); got.status == success || got.status == wrongUsage {
			t.Errorf("%s: status %d", c, got.status)
		}
	}
	for kind, text := range map[string]string{"zeros": "\x00", "one line": "yes ", "JSON arrays": "["} {
		for _, args := range [][]string{{"tokenize"}, {"tokenize", "--decode"}, append([]string{"chat"}, quick...)}[:pick(1, 3)] {
			c := pulsecol(args...)
			c.stdin, c.note = &endless{text: text}, "endless "+kind
			trials.add("endless inputs")
			c.fails(t, "line 1")
		}
	}
}

// TestSmallFileOfLargeText: compressed data that has no end for a program is refused.
func TestSmallFileOfLargeText(t *testing.T) {
	if !whole {
		t.Skip("packs gigabytes: runs in a whole run")
	}
	path := filepath.Join(t.TempDir(), "HumanEval.jsonl.gz")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := io.CopyN(w, &endless{text: strings.Repeat(" ", 1<<10)}, 1<<30)
	must(t, err)
	must(t, w.Close())
	write(t, path, packed.String())
	trials.add("endless inputs")
	pulsecol("eval", "--task", "humaneval", "--data", path).fails(t, path)
}
