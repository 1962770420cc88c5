package tinymodel

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEvalPromptsHaveTrueAnswers recomputes what can be recomputed without the
// model, so that a broken generator of questions is noticed.
func TestEvalPromptsHaveTrueAnswers(t *testing.T) {
	file, err := os.Open("testdata/eval.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	count := map[string]int{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var e struct {
			Task, Prompt, Answer string
			Tokens               int
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		count[e.Task]++
		question := e.Prompt[strings.LastIndex(e.Prompt, "Q: "):]
		switch task, _, _ := strings.Cut(e.Task, "-"); task {
		case "retrieval":
			if strings.Count(e.Prompt, e.Answer) != 1 {
				t.Errorf("%q is not hidden in its text", e.Answer)
			}
		case "multiquery":
			if want := multiqueryAnswer(t, e.Prompt, question); want != e.Answer {
				t.Errorf("%q: answer %q, want %q", question, e.Answer, want)
			}
		case "tracking":
			if want := trackingAnswer(t, e.Prompt, question); want != e.Answer {
				t.Errorf("%q: answer %q, want %q", question, e.Answer, want)
			}
		case "lists":
			if want := listAnswer(t, question); want != e.Answer {
				t.Errorf("%q: answer %q, want %q", question, e.Answer, want)
			}
		case "arithmetic":
			checkSteps(t, e.Answer)
		default:
			t.Errorf("unknown task %q", e.Task)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"retrieval": 30, "multiquery": 15, "tracking": 17,
		"lists": 30, "lists-few-shot": 30, "arithmetic": 30, "arithmetic-few-shot": 30,
	}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("prompts of each task (-want +got):\n%s", diff)
	}
}

// multiqueryAnswer solves "Q: What are the magic numbers for <key>, <key> and <key>?\nA:".
func multiqueryAnswer(t *testing.T, prompt, question string) string {
	t.Helper()
	keys, ok := strings.CutPrefix(question, "Q: What are the magic numbers for ")
	if !ok {
		t.Fatalf("no keys in %q", question)
	}
	keys = strings.Replace(strings.TrimSuffix(keys, "?\nA:"), " and ", ", ", 1)
	var values []string
	for key := range strings.SplitSeq(keys, ", ") {
		_, rest, ok := strings.Cut(prompt, "The magic number for "+key+" is ")
		if !ok {
			t.Fatalf("no number of %q in %q", key, prompt)
		}
		value, _, _ := strings.Cut(rest, ".")
		values = append(values, value)
	}
	return strings.Join(values, ", ") + "."
}

// trackingAnswer solves "Q: Which names have the number <value>?\nA:".
func trackingAnswer(t *testing.T, prompt, question string) string {
	t.Helper()
	var value string
	if _, err := fmt.Sscanf(question, "Q: Which names have the number %5s?\nA:", &value); err != nil {
		t.Fatalf("%q: %v", question, err)
	}
	var names []string
	for sentence := range strings.SplitSeq(prompt, ". ") {
		_, assigned, _ := strings.Cut(sentence, "The number of ")
		name, number, _ := strings.Cut(assigned, " is ")
		number, _, _ = strings.Cut(number, ".")
		if number == value || slices.Contains(names, strings.TrimPrefix(number, "that of ")) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ") + "."
}

// listAnswer solves "Q: Please <operation> the list <numbers>.\nA:".
func listAnswer(t *testing.T, question string) string {
	t.Helper()
	operation, rest, ok := strings.Cut(strings.TrimPrefix(question, "Q: Please "), " the list ")
	if !ok {
		t.Fatalf("no list in %q", question)
	}
	list, _, _ := strings.Cut(rest, ".")
	var x []int
	for _, field := range strings.Fields(list) {
		var v int
		if _, err := fmt.Sscan(field, &v); err != nil {
			t.Fatalf("%q: %v", question, err)
		}
		x = append(x, v)
	}
	switch operation {
	case "reverse":
		slices.Reverse(x)
	case "sort":
		slices.Sort(x)
	case "double each number in":
		for i := range x {
			x[i] *= 2
		}
	case "keep the even numbers in":
		x = slices.DeleteFunc(x, func(v int) bool { return v%2 != 0 })
	case "keep the odd numbers in":
		x = slices.DeleteFunc(x, func(v int) bool { return v%2 == 0 })
	default:
		t.Fatalf("unknown operation %q", operation)
	}
	if len(x) == 0 {
		return "none."
	}
	return strings.Trim(fmt.Sprint(x), "[]") + "."
}

// checkSteps checks "a + b = c. c * d = e. #### e".
func checkSteps(t *testing.T, answer string) {
	t.Helper()
	worked, result, ok := strings.Cut(answer, " #### ")
	if !ok {
		t.Fatalf("no result in %q", answer)
	}
	last := ""
	for step := range strings.SplitSeq(strings.TrimSuffix(worked, "."), ". ") {
		var a, b, c int
		var sign, equals string
		if _, err := fmt.Sscan(step, &a, &sign, &b, &equals, &c); err != nil {
			t.Fatalf("%q: %v", answer, err)
		}
		value := map[string]int{"+": a + b, "-": a - b, "*": a * b}[sign]
		if value != c || last != "" && last != fmt.Sprint(a) {
			t.Errorf("%q: wrong step %q", answer, step)
		}
		last = fmt.Sprint(c)
	}
	if last != result {
		t.Errorf("%q: the last step gives %s", answer, last)
	}
}
