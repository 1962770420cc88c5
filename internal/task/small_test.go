package task

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
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
	for _, pieces := range []func() []piece{
		heldOutArithmetic1, heldOutArithmetic2, heldOutLists, heldOutFiller, heldOutNeedles, heldOutAssignments,
	} {
		for _, p := range pieces() {
			all[p] = true
		}
	}
	return all
})

// heldOutAnswers gives the answers by question.
var heldOutAnswers = sync.OnceValue(func() map[string]string {
	answers := map[string]string{}
	for p := range heldOutPieces() {
		answers[p.text] = p.answer
	}
	return answers
})

// solve parses a prompt of a built-in task, checks that all its parts are held-out texts, and
// returns the answer to its question.
func solve(t *testing.T, prompt string) (answer string) {
	t.Helper()
	prompt, ok := strings.CutSuffix(prompt, "\nA:")
	if !ok {
		t.Fatalf("%q does not end in a question", prompt)
	}
	if text, ok := strings.CutPrefix(prompt, "Text:"); ok {
		text, question, _ := strings.Cut(text, "\nQ: ")
		return solveText(t, text, question)
	}
	examples := strings.Split("\n"+prompt, "\nQ: ")[1:]
	last := len(examples) - 1
	for _, example := range examples[:last] {
		question, solved, _ := strings.Cut(example, "\nA:")
		if !heldOutPieces()[piece{"Q: " + question + "\nA:", solved}] {
			t.Errorf("example %q is not held out", example)
		}
	}
	answer, ok = heldOutAnswers()["Q: "+examples[last]+"\nA:"]
	if !ok {
		t.Errorf("question %q is not held out", examples[last])
	}
	return strings.TrimSpace(answer)
}

var (
	needlePattern     = regexp.MustCompile(`^ The magic number for (\w+) is (\d+)\.$`)
	assignmentPattern = regexp.MustCompile(`^ The number of (\w+) is (\d+)\.$`)
	linkPattern       = regexp.MustCompile(`^ The number of (\w+) is that of (\w+)\.$`)
	askedPattern      = regexp.MustCompile(`^What (?:is|are) the magic numbers? for ((?:\w+, )*\w+)(?: and (\w+))?\?$`)
	trackedPattern    = regexp.MustCompile(`^Which names have the number (\d+)\?$`)
)

func solveText(t *testing.T, text, question string) string {
	t.Helper()
	magic, number := map[string]string{}, map[string]string{} // by key and by name
	names := map[string][]string{}                            // by number, in the order of the text
	name := func(key, value string) {
		if number[key] != "" || value == "" {
			t.Errorf("%s has the numbers %q and %q", key, number[key], value)
		}
		number[key] = value
		names[value] = append(names[value], key)
	}
	for _, sentence := range strings.SplitAfter(text, ".") {
		link := linkPattern.FindStringSubmatch(sentence)
		if sentence != "" && link == nil && !heldOutPieces()[piece{text: sentence}] {
			t.Errorf("sentence %q is not held out", sentence)
		}
		if m := needlePattern.FindStringSubmatch(sentence); m != nil {
			if magic[m[1]] != "" {
				t.Errorf("%s has two magic numbers", m[1])
			}
			magic[m[1]] = m[2]
		} else if m := assignmentPattern.FindStringSubmatch(sentence); m != nil {
			name(m[1], m[2])
		} else if link != nil {
			name(link[1], number[link[2]])
		}
	}
	if m := trackedPattern.FindStringSubmatch(question); m != nil {
		return strings.Join(names[m[1]], ", ") + "."
	}
	m := askedPattern.FindStringSubmatch(question)
	if m == nil {
		t.Fatalf("question %q", question)
	}
	if m[2] == "" {
		return needleSentence(m[1], number5(t, magic[m[1]]))
	}
	var values []string
	for _, key := range append(strings.Split(m[1], ", "), m[2]) {
		values = append(values, fmt.Sprint(number5(t, magic[key])))
	}
	return strings.Join(values, ", ") + "."
}

func number5(t *testing.T, digits string) int {
	t.Helper()
	n, err := strconv.Atoi(digits)
	if err != nil || len(digits) != 5 {
		t.Errorf("number %q", digits)
	}
	return n
}

// TestPromptsOfTraining parses the prompts that train/testdata.py wrote. They consist of the
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
		if answer := solve(t, q.Prompt); answer != q.Answer {
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

// TestWhatIsHiddenVaries: all numbers of sentences and names that train/data.py draws occur.
func TestWhatIsHiddenVaries(t *testing.T) {
	for _, c := range []struct {
		spec, counted string
		fewest, most  int
		inAnswer      bool
	}{
		{"retrieval@300", "magic number for", 1, 6, false},
		{"multiquery@300", "magic number for", 4, 6, false},
		{"multiquery@300", `\w+`, 2, 4, true},
		{"tracking@300", `The number of \w+ is \d`, 2, 4, false},
		{"tracking@300", `\w+`, 2, 5, true},
	} {
		task := newTask(t, c.spec, Options{Count: countWords})
		counted := regexp.MustCompile(c.counted)
		seen := map[int]bool{}
		for i := range 50 {
			s := sample(t, task, i)
			text, _, _ := strings.Cut(s.Prompt, "\nQ: ")
			if c.inAnswer {
				text = s.Answers[0]
			}
			seen[len(counted.FindAllString(text, -1))] = true
		}
		for n := range seen {
			if n < c.fewest || n > c.most {
				t.Errorf("%s: %d of %q", c.spec, n, c.counted)
			}
		}
		if len(seen) != c.most-c.fewest+1 {
			t.Errorf("%s: %v of %q, want all from %d to %d", c.spec, seen, c.counted, c.fewest, c.most)
		}
	}
}

// TestPromptsAreNotTooLong: also with a tokenizer for which the parts of a text do not add up to
// the whole.
func TestPromptsAreNotTooLong(t *testing.T) {
	for _, spec := range []string{"retrieval@300", "lists@300", "arithmetic@300"} {
		fewer := newTask(t, spec, Options{Count: func(text string) int { return 1 + countWords(text) }})
		for i := range 5 {
			if n := 1 + countWords(sample(t, fewer, i).Prompt); n > 300 || n < 200 {
				t.Errorf("%s: %d tokens", spec, n)
			}
		}
		more := func(text string) int { return countWords(text) + len(text)/1000 } // one or two of the whole
		if _, err := New(spec, Options{Count: more}); err == nil {
			t.Errorf("%s: a prompt that is never right", spec)
		}
		if _, err := New(spec, Options{Count: func(string) int { return 0 }}); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

func TestSmallPrompts(t *testing.T) {
	const samples = 5
	for _, spec := range []string{
		"retrieval@64", "retrieval@256", "retrieval@4000", "multiquery@512", "tracking@512", "tracking@4000",
		"lists", "lists@300", "arithmetic", "arithmetic1", "arithmetic2", "arithmetic@600",
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
			for i := range samples {
				s := sample(t, task, i)
				texts[s.Prompt] = true
				if got := count(s.Prompt); length > 0 && got != length {
					t.Errorf("sample %d: %d tokens, want %d", i, got, length)
				}
				answer := solve(t, s.Prompt)
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
			if len(texts) != samples {
				t.Errorf("%d different prompts of %d", len(texts), samples)
			}
		})
	}
}
