package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
)

// Header is the first line of a results file. What it says about model and
// sampler holds for every record; the rest is for readers.
type Header struct {
	Format  int               `json:"pulsecol_eval"` // 1
	Type    string            `json:"model_type"`
	Model   string            `json:"model_sha256"` // of weights, configuration and tokenizer
	Sampler map[string]string `json:"sampler"`      // options that differ from the model's own

	Host    string `json:"host"`
	Version string `json:"version"`
	Created string `json:"created"`
}

// format is the version of the file that this package writes.
const format = 1

// ErrResults is wrapped by every error about the content of a results file.
var ErrResults = errors.New("results file")

// Results is a results file: JSON lines, a header and then a record for each
// answered sample. It is only ever appended to, a whole line at a time.
type Results struct {
	Records []Record // that were there when it was opened
	Dropped int      // bytes of a last line that was cut off in the middle

	path string
	file *os.File
}

// OpenResults opens the file at path for an evaluation under h, or makes it. A
// last line without its end, which an interruption may leave, is removed. Any
// other broken line, and a file made under another header, is an error that wraps
// ErrResults.
func OpenResults(path string, h Header) (r *Results, err error) {
	h.Format = format
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	r = &Results{path: path, Dropped: len(data) - whole}
	if whole > 0 {
		if r.Records, err = parseResults(path, data[:whole], h); err != nil {
			return nil, err
		}
	}
	if r.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.file.Close()
		}
	}()
	if err := r.file.Truncate(int64(whole)); err != nil {
		return nil, err
	}
	if _, err := r.file.Seek(int64(whole), io.SeekStart); err != nil {
		return nil, err
	}
	if whole == 0 {
		return r, r.write(h)
	}
	return r, nil
}

// Append writes a record to the file.
func (r *Results) Append(rec Record) error { return r.write(rec) }

// Close closes the file.
func (r *Results) Close() error { return r.file.Close() }

func (r *Results) write(v any) error {
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := r.file.Write(line.Bytes())
	return err
}

// parseResults reads whole lines.
func parseResults(path string, data []byte, want Header) ([]Record, error) {
	var records []Record
	seen := map[Job]bool{}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		if number == 1 {
			var h Header
			if err := parseLine(path, number, line, &h); err != nil {
				return nil, err
			}
			if err := sameRun(h, want); err != nil {
				return nil, fmt.Errorf("%w %s: %w", ErrResults, path, err)
			}
			continue
		}
		var rec Record
		if err := parseLine(path, number, line, &rec); err != nil {
			return nil, err
		}
		if rec.Task == "" || rec.Name == "" || rec.PromptHash == "" {
			return nil, fmt.Errorf("%w %s:%d:1: a record without task, method or prompt_hash", ErrResults, path, number)
		}
		if rec.Score != nil && !(*rec.Score >= 0 && *rec.Score <= 1) {
			return nil, fmt.Errorf("%w %s:%d:1: score is %v, want null or 0 to 1", ErrResults, path, number, *rec.Score)
		}
		if !seen[rec.Job] { // two evaluations may have written to one file
			seen[rec.Job] = true
			records = append(records, rec)
		}
	}
	return records, nil
}

// parseLine decodes a line of JSON. The error gives file, line and column.
func parseLine(path string, number int, line []byte, v any) error {
	err := json.Unmarshal(line, v)
	if err == nil {
		return nil
	}
	column := int64(1)
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		column = max(1, syntax.Offset)
	case errors.As(err, &typ):
		column = max(1, typ.Offset)
	}
	return fmt.Errorf("%w %s:%d:%d: %w", ErrResults, path, number, column, err)
}

// sameRun reports in what the run of a file differs from this one.
func sameRun(have, want Header) error {
	switch {
	case have.Format != want.Format:
		return fmt.Errorf("pulsecol_eval is %d, want %d: no results file, or one of another version", have.Format, want.Format)
	case have.Type != want.Type || have.Model != want.Model:
		return fmt.Errorf("made with another model: %s %.12s, this one is %s %.12s", have.Type, have.Model, want.Type, want.Model)
	case !maps.Equal(have.Sampler, want.Sampler):
		return fmt.Errorf("made with other sampler options: %v, now %v", have.Sampler, want.Sampler)
	}
	return nil
}
