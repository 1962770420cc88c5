package task

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// gsm8k is GSM8K with the prompts and marks of OpenCompass, as in LLaDA's published results:
// solved examples as turns of a chat, "Let's think step by step", and the last number of the
// output.
type gsm8k struct {
	questions []gsmQuestion
	history   []Turn
}

type gsmQuestion struct{ question, result string }

// gsmLine is a question in a file.
type gsmLine struct {
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

func makeGSM8K(_ int, o Options) (Task, error) {
	path, err := find(o.Data, "gsm8k.jsonl", "test.jsonl")
	if err != nil {
		return nil, err
	}
	file, err := openSource(path)
	if err != nil {
		return nil, err
	}
	t := &gsm8k{}
	if t.questions, err = readGSM8K(file); err != nil {
		return nil, err
	}
	if o.Exemplars != "" {
		if file, err = openSource(o.Exemplars); err != nil {
			return nil, err
		}
		if t.history, err = readExemplars(file); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// readGSM8K reads lines {"question": ..., "answer": "... #### 42"}.
func readGSM8K(file source) ([]gsmQuestion, error) {
	var questions []gsmQuestion
	err := file.lines(func(begin, end int) error {
		var line gsmLine
		if err := file.decode(begin, end, &line); err != nil {
			return err
		}
		if line.Question == "" {
			return file.errorf(begin, `"question" is missing or empty`)
		}
		_, result, ok := strings.Cut(line.Answer, "#### ")
		result = strings.TrimSpace(strings.ReplaceAll(result, ",", ""))
		if _, isNumber := parseNumber(result); !ok || !isNumber {
			return file.errorf(begin, `"answer" does not end in "#### " and a number`)
		}
		questions = append(questions, gsmQuestion{line.Question, result})
		return nil
	})
	if err == nil && len(questions) == 0 {
		err = file.errorf(0, "no questions")
	}
	return questions, err
}

// readExemplars reads an array of {"question", "answer"} into turns of a chat.
func readExemplars(file source) ([]Turn, error) {
	var turns []Turn
	err := file.elements("", func(begin, end int) error {
		var e gsmLine
		if err := file.decode(begin, end, &e); err != nil {
			return err
		}
		if e.Question == "" || e.Answer == "" {
			return file.errorf(begin, `"question" or "answer" is missing or empty`)
		}
		turns = append(turns, Turn{"user", gsmPrompt(e.Question)}, Turn{"assistant", e.Answer})
		return nil
	})
	if err == nil && len(turns) == 0 {
		err = file.errorf(0, "no exemplars")
	}
	return turns, err
}

func gsmPrompt(question string) string {
	return "Question: " + question + "\nLet's think step by step\nAnswer:"
}

func (t *gsm8k) Name() string   { return "gsm8k" }
func (t *gsm8k) Chat() bool     { return true }
func (t *gsm8k) GenLength() int { return 256 } // as in LLaDA's evaluation
func (t *gsm8k) Len() int       { return len(t.questions) }

func (t *gsm8k) Sample(i int) (Sample, error) {
	if err := checkIndex(t.Name(), i, t.Len()); err != nil {
		return Sample{}, err
	}
	q := t.questions[i]
	return Sample{ID: strconv.Itoa(i), Prompt: gsmPrompt(q.question), History: t.history, Answers: []string{q.result}}, nil
}

var number = regexp.MustCompile(`-?\d+\.\d+|-?\d+`)

// Score compares the last number before the next "Question:". A number with thousands separators
// counts from the last comma on, as in OpenCompass.
func (t *gsm8k) Score(s Sample, output string) float64 {
	output, _, _ = strings.Cut(output, "Question:")
	numbers := number.FindAllString(output, -1)
	if len(numbers) == 0 {
		return 0
	}
	got, _ := parseNumber(numbers[len(numbers)-1])
	want, ok := parseNumber(s.Answers[0])
	if ok && math.Abs(got-want) < 1e-6 {
		return 1
	}
	return 0
}

func parseNumber(text string) (float64, bool) {
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil && number.FindString(text) == text
}
