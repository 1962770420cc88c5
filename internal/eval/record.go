package eval

import (
	"errors"
	"fmt"
)

// Cell is a method on a task: an entry of the table.
type Cell struct {
	Task string `json:"task"`
	Method
}

// Job is a sample to answer with the method of a cell.
type Job struct {
	Cell
	Seed  uint64 `json:"seed"`
	Index int    `json:"index"` // of the sample in its task
}

// Asked identifies a sample and its prompt by hashes of their content. A record answers a
// sample if all hashes are equal.
type Asked struct {
	PromptHash    string `json:"prompt_hash"`              // of the prompt's tokens
	DataHash      string `json:"data_hash"`                // of the question and the reference answers
	ExemplarsHash string `json:"exemplars_hash,omitempty"` // of the solved examples; empty without any
}

// Record is an answered sample, a line of the results file.
type Record struct {
	Job
	ID string `json:"id"` // the task's name of the sample
	Asked
	Score  *float64 `json:"score"` // in [0, 1]; null where the task does not mark
	Output string   `json:"output"`

	Tokens       int     `json:"tokens"` // of the sequence, prompt and answer
	Steps        int     `json:"steps"`
	RefreshSteps []int   `json:"refresh_steps"` // counted from 1
	Kept         float64 `json:"kept"`          // share of query-key pairs that a sparse step computed; 1 if none was sparse
	Seconds      float64 `json:"seconds"`
}

// validate reports values that no answered sample can have.
func (r *Record) validate() error {
	switch {
	case r.Task == "" || r.Name == "" || r.PromptHash == "" || r.DataHash == "":
		return errors.New("a record without task, method, prompt_hash or data_hash")
	case r.Score != nil && !(*r.Score >= 0 && *r.Score <= 1):
		return fmt.Errorf("score is %v, want null or 0 to 1", *r.Score)
	case !(r.Kept >= 0 && r.Kept <= 1):
		return fmt.Errorf("kept is %v, want 0 to 1", r.Kept)
	case r.Index < 0 || r.Tokens < 0 || r.Steps < 0 || r.Seconds < 0:
		return errors.New("index, tokens, steps or seconds is below 0")
	}
	return nil
}
