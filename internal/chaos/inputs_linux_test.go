package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// input is a place where the command reads a file.
type input struct {
	name   string
	good   string                     // a content that the command accepts
	args   func(path string) []string // of the command that reads path
	model  bool                       // the file has a fixed name in a model's folder, the directory of path
	folder bool                       // the path may be a folder
	out    bool                       // the file is also written
}

const (
	question = `{"question": "What is 1 + 1?", "answer": "1 + 1 = 2\n#### 2"}` + "\n"
	problem  = `{"task_id": "HumanEval/0", "prompt": "def one():\n", "entry_point": "one", "canonical_solution": "    return 1\n", "test": "def check(f):\n    assert f() == 1\n"}` + "\n"
)

// quick are the flags of a generation that takes no time.
var quick = []string{"--gen-length", "4", "--block-length", "4", "--steps", "1"}

func quickly(args ...string) func(path string) []string {
	return func(path string) []string {
		out := make([]string, 0, len(args)+len(quick))
		for _, a := range args {
			a = strings.ReplaceAll(a, "FILE", path)
			out = append(out, strings.ReplaceAll(a, "DIR", filepath.Dir(path)))
		}
		return append(out, quick...)
	}
}

func plainly(args ...string) func(path string) []string {
	return func(path string) []string { return quickly(args...)(path)[:len(args)] }
}

// inputs are all the files that the command reads.
func inputs(t *testing.T) []input {
	t.Helper()
	model := small(t)
	file := func(name string) string { return read(t, filepath.Join(model, name)) }
	records := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(model))), "bench")
	return []input{
		{name: "config.json", good: file("config.json"), args: quickly("generate", "--model", "DIR", "--prompt", "a"), model: true},
		{name: "generation_config.json", good: file("generation_config.json"), args: plainly("generate", "--model", "DIR", "--prompt-ids", "5,6", "--json"), model: true},
		{name: "tokenizer.json", good: file("tokenizer.json"), args: quickly("generate", "--model", "DIR", "--prompt", "Ab 12 é"), model: true},
		{name: "tokenizer_config.json", good: strings.Replace(file("tokenizer_config.json"), "{", `{"chat_template": "{{ messages[0]['content'] }}",`, 1), args: quickly("generate", "--model", "DIR", "--prompt", "a", "--chat"), model: true},
		{name: "chat_template.jinja", good: "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", args: quickly("generate", "--model", "DIR", "--prompt", "a", "--chat"), model: true},
		{name: "model.safetensors", good: file("model.safetensors"), args: quickly("generate", "--model", "DIR", "--prompt", "a"), model: true},
		{name: "model.safetensors.index.json", good: weightIndex(t, filepath.Join(model, "model.safetensors")), args: quickly("generate", "--model", "DIR", "--prompt", "a"), model: true},

		{name: "--prompt-file", good: "What is this?\n", args: quickly("generate", "--prompt-file", "FILE")},
		{name: "--prompts", good: "One?\nTwo?\n", args: quickly("generate", "--prompts", "FILE")},
		{name: "--prompts of objects", good: `{"prompt": "a"}` + "\n" + `{"prompt_ids": [3, 4, 5]}` + "\n", args: quickly("generate", "--prompts", "FILE", "--json")},
		{name: "--chat-template", good: "{% for m in messages %}{{ m.content }}{% endfor %}", args: quickly("generate", "--model", model, "--prompt", "a", "--chat", "--chat-template", "FILE")},
		{name: "--prompt-file of inspect", good: "What is this?\n", args: quickly("inspect", "--prompt-file", "FILE")},
		{name: "--tokenizer", good: file("tokenizer.json"), args: plainly("tokenize", "--tokenizer", "FILE", "--text", "Ab 12 é")},
		{name: "--data of gsm8k", good: question, args: quickly("eval", "--task", "gsm8k", "--method", "full", "--data", "FILE", "--samples", "1"), folder: true},
		{name: "--data of humaneval", good: problem, args: quickly("eval", "--task", "humaneval", "--method", "full", "--data", "FILE", "--samples", "1"), folder: true},
		{name: "--exemplars", good: "[" + strings.TrimSpace(question) + "]", args: quickly("eval", "--task", "gsm8k", "--method", "full", "--data", filepath.Join(examples(t), "gsm8k.jsonl"), "--exemplars", "FILE", "--samples", "1")},
		{name: "--results", good: "", args: quickly("eval", "--task", "lists@80", "--method", "full", "--samples", "1", "--results", "FILE"), out: true},
		{name: "--kernels", good: read(t, filepath.Join(records, "gpu.jsonl")), args: plainly("bench", "plot", "--kernels", "FILE", "--out", "DIR")},
		{name: "--e2e", good: read(t, filepath.Join(records, "e2e.jsonl")), args: plainly("bench", "plot", "--e2e", "FILE", "--steps", "128", "--out", "DIR")},
	}
}

// examples makes a folder with the questions of a task.
func examples(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "gsm8k.jsonl"), question)
	return dir
}

// prepare returns where the input reads its file from, in a new folder dir, with all
// that it needs but the file itself.
func (in input) prepare(t *testing.T, dir string) (path string) {
	t.Helper()
	switch {
	case in.model && in.name == "model.safetensors.index.json":
		path = modelWithout(t, dir, "model.safetensors")
		must(t, os.Symlink(filepath.Join(small(t), "model.safetensors"), filepath.Join(dir, "part.safetensors")))
		return filepath.Join(dir, in.name)
	case in.model:
		return modelWithout(t, dir, in.name)
	}
	must(t, os.MkdirAll(dir, 0o777))
	return filepath.Join(dir, "file")
}

// TestInputs: what the other tests damage is accepted when it is whole.
func TestInputs(t *testing.T) {
	for _, in := range inputs(t) {
		t.Run(in.name, func(t *testing.T) {
			path := in.prepare(t, t.TempDir())
			if in.good != "" {
				write(t, path, in.good)
			}
			command{args: in.args(path)}.succeeds(t)
		})
	}
}
