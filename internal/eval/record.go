package eval

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

// Record is an answered sample, a line of the results file.
type Record struct {
	Job
	ID         string   `json:"id"`          // the task's name of the sample
	PromptHash string   `json:"prompt_hash"` // equal for equal prompts
	Score      *float64 `json:"score"`       // in [0, 1]; null where the task does not mark
	Output     string   `json:"output"`

	Tokens       int     `json:"tokens"` // of the sequence, prompt and answer
	Steps        int     `json:"steps"`
	RefreshSteps []int   `json:"refresh_steps"` // counted from 1
	Kept         float64 `json:"kept"`          // share of query-key pairs that a sparse step computed; 1 if none was sparse
	Seconds      float64 `json:"seconds"`
}
