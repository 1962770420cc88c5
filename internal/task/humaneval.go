package task

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
)

// humanEval is HumanEval with OpenCompass's prompt. Marking it requires running a model's
// program, which this package does not do. [HumanEvalCompletion] writes outputs for the official
// checker.
type humanEval struct {
	samples []Sample
}

func makeHumanEval(_ int, o Options) (Task, error) {
	path, err := find(o.Data, "HumanEval.jsonl.gz", "HumanEval.jsonl")
	if err != nil {
		return nil, err
	}
	file, err := openSource(path)
	if err != nil {
		return nil, err
	}
	t := &humanEval{}
	t.samples, err = readHumanEval(file)
	return t, err
}

// readHumanEval reads lines {"task_id", "prompt", "canonical_solution", ...}.
func readHumanEval(file source) ([]Sample, error) {
	var samples []Sample
	known := map[string]bool{}
	err := file.lines(func(begin, end int) error {
		var line struct {
			ID       string `json:"task_id"`
			Prompt   string `json:"prompt"`
			Solution string `json:"canonical_solution"`
		}
		if err := file.decode(begin, end, &line); err != nil {
			return err
		}
		switch {
		case line.ID == "":
			return file.errorf(begin, `"task_id" is missing or empty`)
		case line.Prompt == "":
			return file.errorf(begin, `"prompt" is missing or empty`)
		case known[line.ID]: // results are identified by it
			return file.errorf(begin, "task_id %q occurs twice", line.ID)
		}
		known[line.ID] = true
		s := Sample{ID: line.ID, Prompt: "Complete the following python code:\n" + line.Prompt}
		if line.Solution != "" {
			s.Answers = []string{line.Solution}
		}
		samples = append(samples, s)
		return nil
	})
	if err == nil && len(samples) == 0 {
		err = file.errorf(0, "no problems")
	}
	return samples, err
}

func (t *humanEval) Name() string   { return "humaneval" }
func (t *humanEval) Chat() bool     { return true }
func (t *humanEval) GenLength() int { return 512 } // as in LLaDA's evaluation
func (t *humanEval) Len() int       { return len(t.samples) }

func (t *humanEval) Sample(i int) (Sample, error) {
	if err := checkIndex(t.Name(), i, t.Len()); err != nil {
		return Sample{}, err
	}
	return t.samples[i], nil
}

func (t *humanEval) Score(Sample, string) float64 { return math.NaN() }

// HumanEvalCompletion returns the line that the official checker (openai/human-eval) reads for an
// output: {"task_id", "completion"} and a newline. The completion is the first block between ```
// marks, or all of the output if there is none. Its indentation stays, since the checker appends
// it to the prompt.
func HumanEvalCompletion(id, output string) ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(struct {
		ID         string `json:"task_id"`
		Completion string `json:"completion"`
	}{id, codeBlock(output)})
	return line.Bytes(), err
}

func codeBlock(output string) string {
	_, code, ok := strings.Cut(output, "```")
	if !ok {
		return output
	}
	code, _, _ = strings.Cut(code, "```") // an incomplete output has no end mark
	code = strings.TrimPrefix(code, "python")
	if head, rest, ok := strings.Cut(code, "\n"); ok && strings.TrimSpace(head) == "" {
		return rest
	}
	return code
}
