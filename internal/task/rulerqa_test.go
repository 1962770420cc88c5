package task

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// squadJSON is a file of n paragraphs in two articles, with one question each and one that has no
// answer.
func squadJSON(n int) string {
	var articles [2][]string
	for i := range n {
		articles[i%2] = append(articles[i%2], fmt.Sprintf(
			`{"context": "Paragraph %d says that number %d is written here.", "qas": [
			{"question": "What number is in paragraph %d?", "answers": [{"text": "Number %d"}, {"text": "%d is"}], "is_impossible": false},
			{"question": "Why?", "answers": [], "is_impossible": true}]}`, i, 7000+i, i, 7000+i, 7000+i))
	}
	return fmt.Sprintf(`{"version": "v2.0", "data": [{"title": "a", "paragraphs": [%s]},
		{"title": "b", "paragraphs": [%s]}]}`, strings.Join(articles[0], ","), strings.Join(articles[1], ","))
}

// hotpotJSON is a file of n questions with ten passages each.
func hotpotJSON(n int) string {
	var questions []string
	for i := range n {
		var passages []string
		for j := range 10 {
			passages = append(passages, fmt.Sprintf(`["Title %d.%d", ["It is number %d.", " It has %d."]]`, i, j, i, j))
		}
		questions = append(questions, fmt.Sprintf(`{"question": "What is %d?", "answer": "number %d", "context": [%s]}`, i, i, strings.Join(passages, ",")))
	}
	return "[" + strings.Join(questions, ",\n") + "]"
}

func TestDocumentQuestions(t *testing.T) {
	folder := userFolder(t)
	document := regexp.MustCompile(`Document (\d+):\n`)
	for _, c := range []struct{ spec, question, gold string }{
		{"ruler/qa_1@700", "What number is in paragraph 4?", "Paragraph 4 says that number 7004 is written here."},
		{"ruler/qa_2@700", "What is 2?", "Title 2.9\nIt is number 2. It has 9."},
	} {
		task := newTask(t, c.spec, Options{Count: countWords, Data: folder})
		s := sample(t, task, 2) // the third question with an answer; articles hold every second paragraph
		if !strings.HasSuffix(s.Prompt, "\n\nQuestion: "+c.question) || !strings.Contains(s.Prompt, c.gold) || s.Prefix != " Answer:" {
			t.Errorf("%s: %q", c.spec, s.Prompt)
		}
		numbers := document.FindAllStringSubmatch(s.Prompt, -1)
		for i, m := range numbers {
			if m[1] != fmt.Sprint(i+1) {
				t.Errorf("document %d has the number %s", i+1, m[1])
			}
		}
		if n := len(numbers); n%10 != 0 || n == 0 {
			t.Errorf("%d documents", n)
		}
		if got := task.Score(s, "It is "+strings.ToUpper(s.Answers[0])+"."); got != 1 {
			t.Errorf("score %v", got)
		}
		texts := document.Split(s.Prompt, -1)[1:]
		slices.Sort(texts)
		if len(slices.Compact(texts)) != len(numbers) {
			t.Error("a document is shown twice")
		}
	}
	// Documents of the same article come first.
	s := sample(t, newTask(t, "ruler/qa_1@280", Options{Count: countWords, Data: folder}), 2)
	for _, m := range regexp.MustCompile(`Paragraph (\d+) says`).FindAllStringSubmatch(s.Prompt, -1) {
		if strings.Contains("13579", m[1][len(m[1])-1:]) {
			t.Errorf("paragraph %s is of the other article", m[1])
		}
	}
	// With few documents, all are shown.
	s = sample(t, newTask(t, "ruler/qa_2@100000", Options{Count: countWords, Data: folder}), 0)
	if n := len(document.FindAllString(s.Prompt, -1)); n != 120 {
		t.Errorf("%d documents of 120", n)
	}
}

func TestDocumentFileErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"{}", `f:1:1: want a JSON object with an array "data"`},
		{`{"data": {}}`, `f:1:1: want a JSON object with an array "data"`},
		{`{"version": [], "data": []}`, "f:1:1: no questions with answers"},
		{"{\"data\": [\n {\"paragraphs\": 3}]}", `f:2:17: paragraphs is 3, want an array`},
		{"{\"data\": [\n {\"paragraphs\": [{\"context\": \"a\", \"qas\": [{\"question\": \"q\"}]}]}]}", "f:2:2: paragraph 0 of this article: an answer is missing"},
		{"{\"data\": [", "f:1:11: ends in the middle"},
	} {
		_, err := parse(t, c.text, readSQuAD)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %s", c.text, err, c.want)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"[]", "f:1:1: no questions"},
		{"3", "f:1:1: want a JSON array"},
		{"[\n{\"question\": \"q\", \"answer\": \"a\", \"context\": [[\"t\"]]}]", "f:2:1: passage 0 of this question is not a title"},
		{"[\n{\"question\": \"q\", \"answer\": \"a\"}]", "f:2:1: the context is missing"},
		{"[\n{\"answer\": \"a\", \"context\": [[\"t\", [\"s\"]]]}]", "f:2:1: a question is missing"},
	} {
		_, err := parse(t, c.text, readHotpotQA)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %s", c.text, err, c.want)
		}
	}
}

func FuzzDocuments(f *testing.F) {
	f.Add(squadJSON(2))
	f.Add(hotpotJSON(1))
	f.Add(`{"a": [1, {"data": 2}], "data": [{}, {"paragraphs": [{}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, read := range []func(source) (documentQA, error){readSQuAD, readHotpotQA} {
			qa, err := parse(t, text, read)
			checkFuzzed(t, len(qa.questions), err)
			for i, q := range qa.questions {
				if q.check() != nil || len(qa.text(stream(0, "qa", i), i, 3).answers) == 0 {
					t.Errorf("%+v", q)
				}
			}
		}
	})
}
