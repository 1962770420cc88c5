package eval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The beginnings of the lines of a results file.
const (
	headerStart = `{"pulsecol_eval":`
	recordStart = `{"task":"`
)

// maxLine is the longest line in bytes, far above that of any answer. It bounds the memory
// for a file of another kind.
const maxLine = 1 << 24

// readLine returns a line with its newline, or the first maxLine bytes of a longer one. For
// an incomplete last line it returns io.EOF as well.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if err != bufio.ErrBufferFull || len(line) >= maxLine {
			if err == bufio.ErrBufferFull {
				err = nil
			}
			return line, err
		}
	}
}

// start is the beginning of the next line.
func (r *Results) start() string {
	if r.lines == 0 {
		return headerStart
	}
	return recordStart
}

// parse adds a line's header or record.
func (r *Results) parse(line []byte) error {
	switch {
	case r.lines == 0 && !bytes.HasPrefix(line, []byte(headerStart)):
		return r.badLine(1, r.notOurs())
	case !bytes.HasSuffix(line, []byte("\n")):
		return r.badLine(1, fmt.Errorf("longer than %d bytes", maxLine))
	case r.lines == 0:
		var h Header
		if column, err := parseJSON(line, &h); err != nil {
			return r.badLine(column, err)
		}
		return r.sameRun(h)
	}
	var rec Record
	column, err := parseJSON(line, &rec)
	if err == nil {
		err = rec.validate()
	}
	if err != nil {
		return r.badLine(column, err)
	}
	if _, ok := r.records[rec.Job]; !ok { // files may have been joined
		r.records[rec.Job] = rec
	}
	return nil
}

// sameRun returns an error that names how the header of a file differs from this run's.
func (r *Results) sameRun(have Header) error {
	const advice = "; an evaluation of another kind needs a file of its own"
	want := r.header
	switch {
	case have.Format != want.Format:
		return r.errorf("has format %d, this version of pulsecol has %d%s", have.Format, want.Format, advice)
	case have.Type != want.Type || have.Model != want.Model:
		return r.errorf("made with another model: %s %.12s, this one is %s %.12s%s", have.Type, have.Model, want.Type, want.Model, advice)
	case !maps.Equal(have.Sampler, want.Sampler):
		return r.errorf("made with other sampler options: %s, now %s%s", flagsText(have.Sampler), flagsText(want.Sampler), advice)
	}
	return nil
}

// flagsText formats options as on a command line.
func flagsText(options map[string]string) string {
	var text []string
	for _, name := range slices.Sorted(maps.Keys(options)) {
		text = append(text, fmt.Sprintf("--%s %s", name, options[name]))
	}
	if text == nil {
		return "none"
	}
	return strings.Join(text, " ")
}

// checkAsked returns an error if a record answers another prompt or other data than now.
func (r *Results) checkAsked(rec Record, now Asked) error {
	other := "prompts, by another template or another version of pulsecol"
	switch {
	case rec.Asked == now:
		return nil
	case rec.DataHash != now.DataHash:
		other = "data"
	case rec.ExemplarsHash != now.ExemplarsHash:
		other = "exemplars"
	}
	return r.errorf("made with other %s: sample %d of %s differs; an evaluation of these needs a file of its own", other, rec.Index, rec.Task)
}

// notOurs is the error for a line of another program.
func (r *Results) notOurs() error {
	if r.lines == 0 {
		return fmt.Errorf("is not a results file, which begins with %s", headerStart)
	}
	return errors.New("has no end, and is not an answer that was cut off")
}

// badLine is an error about the next line, at a column.
func (r *Results) badLine(column int64, err error) error {
	advice := "without this line its sample is answered again"
	if r.lines == 0 {
		advice = "name a new file"
	}
	err = fmt.Errorf("%w; %s", err, advice)
	return fmt.Errorf("%w %s:%d:%d: %w", ErrResults, r.path, r.lines+1, column, err)
}

func (r *Results) errorf(format string, args ...any) error {
	return fmt.Errorf("%w %s: %w", ErrResults, r.path, fmt.Errorf(format, args...))
}

// parseJSON decodes a line. An error comes with its column, from 1.
func parseJSON(line []byte, v any) (column int64, err error) {
	err = json.Unmarshal(line, v)
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return max(1, syntax.Offset), err
	case errors.As(err, &mismatch):
		name := mismatch.Field[strings.LastIndexByte(mismatch.Field, '.')+1:] // without the structs that embed it
		if name == "" {
			name = "a line"
		}
		return max(1, mismatch.Offset), fmt.Errorf("%s cannot be a JSON %s", name, mismatch.Value)
	}
	return 1, err
}
