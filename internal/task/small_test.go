package task

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/internal/tokenizer"
)

// smallTokenizer is that of the small models.
var smallTokenizer = sync.OnceValues(func() (*tokenizer.Tokenizer, error) {
	return tokenizer.Open(tinymodel.FS())
})

// countSmall counts with the small models' tokenizer.
func countSmall(t testing.TB) Count {
	t.Helper()
	tok, err := smallTokenizer()
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) int {
		ids, err := tok.Encode(text)
		if err != nil {
			t.Error(err)
		}
		return len(ids)
	}
}

// countWords is a Count of another kind: the parts of a text do not add up to the whole.
func countWords(text string) int { return len(strings.Fields(text)) }

func newTask(t testing.TB, spec string, o Options) Task {
	t.Helper()
	task, err := New(spec, o)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func sample(t testing.TB, task Task, i int) Sample {
	t.Helper()
	s, err := task.Sample(i)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// heldOutPieces are all held-out texts with their answers.
var heldOutPieces = sync.OnceValue(func() map[piece]bool {
	all := map[piece]bool{}
	for _, pieces := range []func() []piece{heldOutArithmetic1, heldOutArithmetic2, heldOutLists, heldOutFiller, heldOutNeedles} {
		for _, p := range pieces() {
			all[p] = true
		}
	}
	return all
})

// parsePrompt takes a prompt of a built-in task apart, and checks that all its parts are held-out
// texts. It returns the answer.
func parsePrompt(t *testing.T, prompt string) (answer string) {
	t.Helper()
	known := heldOutPieces()
	if text, ok := strings.CutPrefix(prompt, "Text:"); ok {
		text, question, ok := strings.Cut(text, "\nQ: What is the magic number for ")
		key, end := strings.CutSuffix(question, "?\nA:")
		if !ok || !end {
			t.Fatalf("no question in %q", prompt)
		}
		for _, sentence := range strings.SplitAfter(text, ".") {
			if sentence != "" && !known[piece{text: sentence}] {
				t.Errorf("sentence %q is not held out", sentence)
			}
			if strings.Contains(sentence, " for "+key+" is ") {
				answer = strings.TrimSpace(sentence)
			}
		}
		return answer
	}
	for _, example := range strings.Split(strings.TrimPrefix(prompt, "Q: "), "\nQ: ") {
		question, solved, ok := strings.Cut("Q: "+example, "\nA:")
		if !ok {
			t.Fatalf("no answer in %q", example)
		}
		if answer = solved; answer != "" && !known[piece{question + "\nA:", answer}] {
			t.Errorf("example %q with answer %q is not held out", question, answer)
		}
	}
	if answer != "" {
		t.Errorf("the question is answered: %q", prompt)
	}
	last := prompt[strings.LastIndex(prompt, "Q: "):]
	for p := range known {
		if p.text == last {
			return strings.TrimSpace(p.answer)
		}
	}
	t.Errorf("question %q is not held out", last)
	return ""
}

// TestPromptsOfTraining takes apart the prompts that train/testdata.py wrote: they consist of the
// same held-out texts, and Score marks their answers as right.
func TestPromptsOfTraining(t *testing.T) {
	f, err := os.Open("../tinymodel/testdata/eval.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	count := countSmall(t)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	n := 0
	for ; lines.Scan(); n++ {
		var q struct {
			Task, Prompt, Answer string
			Tokens               int
		}
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			t.Fatal(err)
		}
		if answer := parsePrompt(t, q.Prompt); answer != q.Answer {
			t.Errorf("%s: answer %q, want %q", q.Task, answer, q.Answer)
		}
		name, _, _ := strings.Cut(q.Task, "-")
		task := newTask(t, name+"@256", Options{Count: count})
		if got := count(q.Prompt); got != q.Tokens {
			t.Errorf("%d tokens, want %d", got, q.Tokens)
		}
		if got := task.Score(Sample{Answers: []string{q.Answer}}, " "+q.Answer); got != 1 {
			t.Errorf("%s: score %v of the answer %q", q.Task, got, q.Answer)
		}
	}
	if err := lines.Err(); err != nil || n < 100 {
		t.Errorf("%d prompts, error %v", n, err)
	}
}

func TestSmallPrompts(t *testing.T) {
	for _, spec := range []string{
		"retrieval@64", "retrieval@256", "retrieval@1024", "retrieval@2048", "lists", "lists@300", "lists@1000",
		"arithmetic", "arithmetic1", "arithmetic2", "arithmetic@600", "arithmetic2@1000",
	} {
		t.Run(spec, func(t *testing.T) {
			count := countSmall(t)
			_, length, err := parseSpec(spec)
			if err != nil {
				t.Fatal(err)
			}
			task := newTask(t, spec, Options{Seed: 7, Count: count})
			other := newTask(t, spec, Options{Seed: 8, Count: count})
			same := newTask(t, spec, Options{Seed: 7, Count: count})
			texts := map[string]bool{}
			for i := range 10 {
				s := sample(t, task, i)
				texts[s.Prompt] = true
				if got := count(s.Prompt); length > 0 && got != length {
					t.Errorf("sample %d: %d tokens, want %d", i, got, length)
				}
				answer := parsePrompt(t, s.Prompt)
				if len(s.Answers) != 1 || s.Answers[0] != answer {
					t.Errorf("answers %q, want %q", s.Answers, answer)
				}
				if right, wrong, empty := task.Score(s, " "+answer+"\n"), task.Score(s, answer+"1"), task.Score(s, ""); right != 1 || wrong != 0 || empty != 0 {
					t.Errorf("scores %v, %v and %v of right, wrong and empty output", right, wrong, empty)
				}
				if diff := cmp.Diff(s, sample(t, same, i)); diff != "" {
					t.Errorf("same seed: %s", diff)
				}
				if s.Prompt == sample(t, other, i).Prompt {
					t.Errorf("sample %d is the same with another seed", i)
				}
			}
			if len(texts) != 10 {
				t.Errorf("%d different prompts of 10", len(texts))
			}
		})
	}
}
