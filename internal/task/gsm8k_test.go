package task

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pulsecol/pulsecol/internal/infile"
)

const gsmLines = `{"question": "Two bags hold 600 peas each. How many peas are there?", "answer": "2 * 600 = <<2*600=1200>>1200 peas.\n#### 1,200"}

{"question": "Ann has 3 pens and loses 4. What is her balance?", "answer": "3 - 4 = -1\n#### -1"}
`

func TestGSM8KPrompt(t *testing.T) {
	folder := write(t, map[string]string{
		"test.jsonl":     gsmLines,
		"exemplars.json": `[{"question": "1 + 1?", "answer": "1 + 1 = 2.\nThe answer is 2"}, {"question": "2 + 2?", "answer": "The answer is 4"}]`,
	})
	task := newTask(t, "gsm8k", Options{Data: folder, Exemplars: folder + "/exemplars.json"})
	want := Sample{
		ID:     "0",
		Prompt: "Question: Two bags hold 600 peas each. How many peas are there?\nLet's think step by step\nAnswer:",
		History: []Turn{
			{"user", "Question: 1 + 1?\nLet's think step by step\nAnswer:"}, {"assistant", "1 + 1 = 2.\nThe answer is 2"},
			{"user", "Question: 2 + 2?\nLet's think step by step\nAnswer:"}, {"assistant", "The answer is 4"},
		},
		Answers: []string{"1200"},
	}
	if diff := cmp.Diff(want, sample(t, task, 0)); diff != "" {
		t.Error(diff)
	}
	if s := sample(t, task, 1); s.ID != "1" || s.Answers[0] != "-1" {
		t.Errorf("%+v", s)
	}
}

func TestGSM8KScore(t *testing.T) {
	task := &gsm8k{}
	for _, c := range []struct {
		output, result string
		want           float64
	}{
		{"The answer is 1200", "1200", 1},
		{"1200.0", "1200", 1},
		{"2 * 600 = 1200.", "1200", 1},
		{"1200 peas in 2 bags", "1200", 0},                       // the last number counts
		{"The answer is 1,200", "1200", 0},                       // as in OpenCompass
		{"The answer is 7\nQuestion: 3 + 5?\nAnswer: 8", "7", 1}, // cut before the next question
		{"The answer is -1", "-1", 1},
		{"3-4=-1", "-1", 1},
		{"10-1", "-1", 1}, // a minus is a sign, as in OpenCompass
		{"1199.9999999", "1200", 1},
		{"1199.99", "1200", 0},
		{"007", "7", 1},
		{"no number", "0", 0},
		{"", "0", 0},
		{"\x00\xff٣", "3", 0},
		{strings.Repeat("9", 400), "1", 0},
	} {
		if got := task.Score(Sample{Answers: []string{c.result}}, c.output); got != c.want {
			t.Errorf("%q for %s: %v, want %v", c.output, c.result, got, c.want)
		}
	}
}

func TestGSM8KFileErrors(t *testing.T) {
	const good = `{"question": "1 + 1?", "answer": "#### 2"}` + "\n"
	for _, c := range []struct{ text, want string }{
		{"", "f:1:1: no questions"},
		{"\n \n", "f:1:1: no questions"},
		{good + "{", "f:2:2: ends in the middle of a value"},
		{good + `{"question": "ä", answer: 1}`, "f:2:19: invalid character 'a'"},
		{good + "\n" + `{"question": 1}`, `f:3:14: question is 1, want a string`},
		{good + `{"answer": "#### 2"}`, `f:2:1: "question" is missing`},
		{good + `{"question": "1 + 1?", "answer": "2"}`, `f:2:1: "answer" does not end in "#### "`},
		{good + `{"question": "1 + 1?", "answer": "#### two"}`, `f:2:1: "answer" does not end`},
		{good + `[]`, "f:2:1: the value is an array, want an object"},
		{good + "\"ab\xff\"", "f:2:4: byte 0xff is not valid UTF-8"},
		{"\x1f\x8bnothing", "f: "},
	} {
		_, err := parse(t, c.text, readGSM8K)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %s", c.text, err, c.want)
		}
	}
}

func TestExemplarErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[]", "f:1:1: no exemplars"},
		{"{}", "f:1:1: want a JSON array"},
		{"[\n  {\"question\": \"a\", \"answer\": \"b\"},\n  {\"question\": \"a\"}]", `f:3:3: "question" or "answer"`},
		{"[\n1]", "f:2:1: "},
		{"[\n{]", "f:2:2: invalid character ']'"},
	} {
		_, err := parse(t, c.text, readExemplars)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %s", c.text, err, c.want)
		}
	}
}

// parse reads text as the file f.
func parse[T any](t testing.TB, text string, read func(source) (T, error)) (T, error) {
	file, err := unpack("f", []byte(text), maxSource)
	if err != nil {
		var none T
		return none, err
	}
	return read(file)
}

func TestSourceIsBounded(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack("f", packed.Bytes(), infile.Limit{Bytes: 999, What: "data"}); !errors.Is(err, infile.ErrTooLarge) {
		t.Errorf("error %v, want infile.ErrTooLarge", err)
	}
	file, err := unpack("f", packed.Bytes(), infile.Limit{Bytes: 1000, What: "data"})
	if err != nil || len(file.text) != 1000 {
		t.Errorf("%d bytes, error %v", len(file.text), err)
	}
	path := filepath.Join(t.TempDir(), "test.jsonl")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, maxSource.Bytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := openSource(path); !errors.Is(err, infile.ErrTooLarge) {
		t.Errorf("error %v, want infile.ErrTooLarge", err)
	}
}

func FuzzGSM8K(f *testing.F) {
	f.Add(gsmLines)
	f.Add(`{"question": "a", "answer": "#### -1.5"}` + "\r\n{")
	f.Add("\x1f\x8b\x08")
	f.Fuzz(func(t *testing.T, text string) {
		questions, err := parse(t, text, readGSM8K)
		checkFuzzed(t, len(questions), err)
		if err != nil {
			return
		}
		task := &gsm8k{questions: questions}
		for i, q := range questions {
			s := sample(t, task, i)
			if q.question == "" || task.Score(s, "So it is "+q.result) != 1 {
				t.Errorf("%+v", q)
			}
		}
	})
}

// checkFuzzed checks that a file gives items, or an error with a place.
func checkFuzzed(t *testing.T, n int, err error) {
	t.Helper()
	if err == nil && n == 0 || err != nil && !strings.HasPrefix(err.Error(), "f:") {
		t.Errorf("%d items, error %v", n, err)
	}
}
