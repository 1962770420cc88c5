package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// documentQA are questions about one or more of many documents.
type documentQA struct {
	documents []string
	questions []documentQuestion
}

type documentQuestion struct {
	question string
	answers  []string
	gold     []string // documents of the question: all are in the prompt
	filler   []string // other documents, used before those of other questions; may hold those of gold too
}

// makeDocumentQA is question answering among irrelevant documents. The questions are in the order
// of the file.
func makeDocumentQA(t *ruler, o Options, read func(source) (documentQA, error), names ...string) error {
	path, err := find(o.Data, names...)
	if err != nil {
		return err
	}
	file, err := openSource(path)
	if err != nil {
		return err
	}
	qa, err := read(file)
	if err != nil {
		return err
	}
	most := 0
	for _, q := range qa.questions {
		most = max(most, len(q.gold))
	}
	slices.Sort(qa.documents)
	qa.documents = slices.Compact(qa.documents)
	t.genLength, t.score, t.samples = qaGenLength, matchPart, len(qa.questions)
	t.size = textSize{max(10, most), 10, max(10, most, len(qa.documents))}
	t.text = qa.text
	return nil
}

// text makes a prompt of n documents, or of all if they are fewer.
func (qa documentQA) text(r *rand.Rand, i, n int) rulerText {
	q := qa.questions[i]
	var shown []string
	known := map[string]bool{}
	show := func(documents []string) {
		for _, d := range documents {
			if !known[d] {
				known[d] = true
				shown = append(shown, d)
			}
		}
	}
	show(q.gold)
	for _, documents := range [][]string{q.filler, qa.documents} {
		for _, j := range r.Perm(len(documents)) {
			if len(shown) < n {
				show(documents[j : j+1])
			}
		}
	}
	r.Shuffle(len(shown), func(i, j int) { shown[i], shown[j] = shown[j], shown[i] })
	for i, d := range shown {
		shown[i] = fmt.Sprintf("Document %d:\n%s", i+1, d)
	}
	const instruction = "Answer the question based on the given documents. Only give me the answer and do not output any other words."
	return rulerText{
		prompt: instruction + "\n\nThe following are given documents.\n\n" + strings.Join(shown, "\n\n") +
			"\n\n" + instruction + "\n\nQuestion: " + q.question,
		prefix:  " Answer:",
		answers: q.answers,
	}
}

// readSQuAD reads the questions of SQuAD 2.0 that have an answer. The other paragraphs of an article
// are the filler of its questions.
func readSQuAD(file source) (documentQA, error) {
	var qa documentQA
	err := file.elements("data", func(begin, end int) error {
		var article struct {
			Paragraphs []struct {
				Context string `json:"context"`
				QAs     []struct {
					Question string `json:"question"`
					Answers  []struct {
						Text string `json:"text"`
					} `json:"answers"`
					Impossible bool `json:"is_impossible"`
				} `json:"qas"`
			} `json:"paragraphs"`
		}
		if err := file.decode(begin, end, &article); err != nil {
			return err
		}
		var paragraphs []string
		for _, p := range article.Paragraphs {
			paragraphs = append(paragraphs, p.Context)
		}
		qa.documents = append(qa.documents, paragraphs...)
		for i, paragraph := range article.Paragraphs {
			for _, q := range paragraph.QAs {
				if q.Impossible {
					continue
				}
				var answers []string
				for _, a := range q.Answers {
					answers = append(answers, a.Text)
				}
				question := documentQuestion{q.Question, answers, []string{paragraph.Context}, paragraphs}
				if err := question.check(); err != nil {
					return file.errorf(begin, "paragraph %d of this article: %w", i, err)
				}
				qa.questions = append(qa.questions, question)
			}
		}
		return nil
	})
	if err == nil && len(qa.questions) == 0 {
		err = file.errorf(0, "no questions with answers")
	}
	return qa, err
}

// readHotpotQA reads the development set of HotpotQA with distractors.
func readHotpotQA(file source) (documentQA, error) {
	var qa documentQA
	err := file.elements("", func(begin, end int) error {
		var q struct {
			Question string              `json:"question"`
			Answer   string              `json:"answer"`
			Context  [][]json.RawMessage `json:"context"` // title, array of sentences
		}
		if err := file.decode(begin, end, &q); err != nil {
			return err
		}
		question := documentQuestion{question: q.Question, answers: []string{q.Answer}}
		for i, passage := range q.Context {
			var title string
			var sentences []string
			if len(passage) != 2 || json.Unmarshal(passage[0], &title) != nil || json.Unmarshal(passage[1], &sentences) != nil {
				return file.errorf(begin, "passage %d of this question is not a title and an array of sentences", i)
			}
			question.gold = append(question.gold, title+"\n"+strings.Join(sentences, ""))
		}
		if err := question.check(); err != nil {
			return file.errorf(begin, "%w", err)
		}
		qa.questions = append(qa.questions, question)
		qa.documents = append(qa.documents, question.gold...)
		return nil
	})
	if err == nil && len(qa.questions) == 0 {
		err = file.errorf(0, "no questions")
	}
	return qa, err
}

func (q documentQuestion) check() error {
	switch {
	case q.question == "":
		return errors.New("a question is missing or empty")
	case len(q.answers) == 0 || slices.Contains(q.answers, ""):
		return errors.New("an answer is missing or empty")
	case len(q.gold) == 0 || slices.Contains(q.gold, ""):
		return errors.New("the context is missing or empty")
	}
	return nil
}
