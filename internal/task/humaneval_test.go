package task

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

const humanEvalLines = `{"task_id": "HumanEval/0", "prompt": "def one():\n    \"\"\" One. \"\"\"\n", "entry_point": "one", "canonical_solution": "    return 1\n", "test": "def check(c):\n    assert c() == 1\n"}
{"task_id": "HumanEval/1", "prompt": "def two():\n", "entry_point": "two", "canonical_solution": "    return 2\n", "test": ""}
`

// TestHumanEval reads the file plain and packed, as it is published.
func TestHumanEval(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(humanEvalLines)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"HumanEval.jsonl": humanEvalLines, "HumanEval.jsonl.gz": packed.String()} {
		task := newTask(t, "humaneval", Options{Data: write(t, map[string]string{name: text})})
		s := sample(t, task, 0)
		if s.ID != "HumanEval/0" || s.Prompt != "Complete the following python code:\ndef one():\n    \"\"\" One. \"\"\"\n" || task.Len() != 2 {
			t.Errorf("%s: %d samples, %+v", name, task.Len(), s)
		}
		if score := task.Score(s, s.Answers[0]); !math.IsNaN(score) {
			t.Errorf("score %v, want NaN: nothing is run", score)
		}
	}
}

func TestHumanEvalCompletion(t *testing.T) {
	for _, c := range []struct{ output, want string }{
		{"    return 1\n", "    return 1\n"},
		{"Here it is:\n```python\n    return 1\n```\nIt returns 1.\n```\nreturn 2\n```", "    return 1\n"},
		{"```\n    return 1\n```", "    return 1\n"},
		{"``` python\n  x\n```", " python\n  x\n"},
		{"```return 1```", "return 1"},
		{"```python\n    if a < b && \"é\":", "    if a < b && \"é\":"}, // cut short
		{"```", ""},
		{"", ""},
	} {
		line, err := HumanEvalCompletion("HumanEval/7", c.output)
		var got struct{ Task_ID, Completion string }
		if err != nil || json.Unmarshal(line, &got) != nil || got.Task_ID != "HumanEval/7" || got.Completion != c.want {
			t.Errorf("%q: %s, error %v, want completion %q", c.output, line, err, c.want)
		}
		if bytes.Count(line, []byte("\n")) != 1 || line[len(line)-1] != '\n' || strings.Contains(string(line), `\u003c`) {
			t.Errorf("%q is not one plain line", line)
		}
	}
}

func TestHumanEvalFileErrors(t *testing.T) {
	first, _, _ := strings.Cut(humanEvalLines, "\n")
	for _, c := range []struct{ text, want string }{
		{"", "f:1:1: no problems"},
		{first + "\n" + first, `f:2:1: task_id "HumanEval/0" occurs twice`},
		{`{"prompt": "a"}`, `f:1:1: "task_id" is missing`},
		{`{"task_id": "a", "prompt": ""}`, `f:1:1: "prompt" is missing`},
		{first + "\n{\"task_id\": [\n", `f:2:14: ends in the middle`},
	} {
		_, err := parse(t, c.text, readHumanEval)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %s", c.text, err, c.want)
		}
	}
}

func FuzzHumanEval(f *testing.F) {
	f.Add(humanEvalLines)
	f.Add(`{"task_id": "a", "prompt": "b"}` + "\n\n{\"task_id\": \"b\"")
	f.Fuzz(func(t *testing.T, text string) {
		samples, err := parse(t, text, readHumanEval)
		checkFuzzed(t, len(samples), err)
		if err != nil {
			return
		}
		for _, s := range samples {
			line, err := HumanEvalCompletion(s.ID, s.Prompt)
			if err != nil || !json.Valid(line) {
				t.Errorf("%q: %q, error %v", s.ID, line, err)
			}
		}
	})
}
