package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/infile"
	"github.com/pulsecol/pulsecol/internal/jsonfile"
)

// batchFlags are the flags for many prompts.
type batchFlags struct {
	Prompts *string `xor:"prompt" group:"Prompt" placeholder:"FILE" help:"Answer every line of FILE, or with - of the standard input. If the first line is a JSON object with prompt or prompt_ids, all are; other members are ignored. Empty lines are left out."`
	Batch   int     `group:"Prompt" placeholder:"N" default:"1" help:"Prompts of the same number of tokens to answer at once, where that leaves their tokens as they are: at temperature 0, without randomness, thresholds and adaptive schedules, for Dream with --suppress-mask or --cache. (A GPU rounds otherwise in a batch.) Default: 1."`
}

// maxPrompts is the largest file of prompts.
var maxPrompts = infile.Limit{Bytes: 256 << 20, What: "a file of prompts"}

// job is a prompt of a file.
type job struct {
	index int // from 0
	line  int // from 1
	ids   []int32
	att   attention
	out   *outcome // nil until it has run
	batch int      // sequences in its batch
}

// batchRun answers the prompts of a file.
type batchRun struct {
	*generateCmd
	std     stdio
	m       *openModel
	kept    *keptSession // of all batches
	s       sampler
	jobs    []*job
	printed int // of jobs
}

// numbered is what generate --prompts --json prints.
type numbered struct {
	Index int `json:"index"` // of the prompt, from 0
	Line  int `json:"line"`  // of the file, from 1
	Batch int `json:"batch"` // prompts answered at once
	generation
}

// runPrompts answers every prompt of a file. All prompts are checked before the first is
// answered.
func (c *generateCmd) runPrompts(line *kong.Context, std stdio, m *openModel, s sampler) error {
	var b bounds
	b.between(1, maxBatch, "batch", &c.Many.Batch)
	if err := b.err(); err != nil {
		return err
	}
	if err := c.Prompt.check(m, true); err != nil {
		return err
	}
	r := &batchRun{generateCmd: c, std: std, m: m, kept: &keptSession{m: m}, s: s}
	defer r.kept.close()
	if err := r.read(line); err != nil {
		return err
	}
	batches := r.batches()
	if err := r.checkMemory(batches); err != nil {
		return err
	}
	ctx, stop := untilInterrupted()
	defer stop()
	for _, jobs := range batches {
		err := r.run(ctx, jobs)
		if err = errors.Join(err, r.print(err != nil)); err != nil {
			return err
		}
	}
	return nil
}

// read reads and checks the prompts.
func (r *batchRun) read(line *kong.Context) error {
	name := *r.Many.Prompts
	var data []byte
	var err error
	if name == "-" {
		name = "the standard input"
		data, err = infile.ReadAll(r.std.in, name, maxPrompts)
	} else {
		data, err = infile.Read(name, maxPrompts)
	}
	if err != nil {
		return fmt.Errorf("--prompts: %w", err)
	}
	file := jsonfile.File{Name: name, Text: data}
	if err := file.CheckUTF8(); err != nil {
		return fmt.Errorf("--prompts: %w", err)
	}
	isJSON, number, begin := false, 0, 0
	for text := range bytes.Lines(data) {
		number++
		end := begin + len(text)
		if prompt := string(bytes.TrimRight(text, "\r\n")); strings.TrimSpace(prompt) != "" {
			object := promptObject{Prompt: &prompt}
			if len(r.jobs) == 0 {
				isJSON = isPromptObject(text)
			}
			if isJSON {
				object = promptObject{}
				err = file.UnmarshalPart(begin, begin+len(prompt), &object)
			}
			j := &job{index: len(r.jobs), line: number}
			if err == nil {
				if err = r.prepare(j, object, line); err != nil {
					err = fmt.Errorf("%s:%d: %w", name, number, err)
				}
			}
			if err != nil {
				return fmt.Errorf("--prompts: %w", err)
			}
			r.jobs = append(r.jobs, j)
		}
		begin = end
	}
	if len(r.jobs) == 0 {
		return fmt.Errorf("--prompts: %s has no prompt", name)
	}
	return nil
}

type promptObject struct {
	Prompt    *string  `json:"prompt"`
	PromptIDs []*int32 `json:"prompt_ids"`
}

// isPromptObject reports whether a line is a JSON object of a prompt.
func isPromptObject(line []byte) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(line, &object) == nil && (object["prompt"] != nil || object["prompt_ids"] != nil)
}

// prepare sets j's prompt from an object.
func (r *batchRun) prepare(j *job, object promptObject, line *kong.Context) (err error) {
	switch {
	case (object.Prompt == nil) == (object.PromptIDs == nil):
		return errors.New("want prompt or prompt_ids, and not both")
	case object.Prompt != nil:
		j.ids, err = r.Prompt.encode(r.m, *object.Prompt)
	default:
		j.ids, err = r.checkIDs(object.PromptIDs)
	}
	if err != nil {
		return err
	}
	if err := checkLength(r.m, len(j.ids), r.s.newTokens()); err != nil {
		return err
	}
	if j.att, err = r.Method.answer(r.m, r.s, j.ids, r.Sampler.Seed, line); err != nil {
		return err
	}
	_, err = r.s.steps(j.ids, j.att.Config)
	return err
}

// checkIDs returns the given token ids, or an error if the model does not have one.
func (r *batchRun) checkIDs(given []*int32) ([]int32, error) {
	ids := make([]int32, len(given))
	for i, id := range given {
		switch vocab := r.m.config().Vocab; {
		case id == nil:
			return nil, fmt.Errorf("null at position %d of prompt_ids, want a token id", i)
		case *id < 0 || int(*id) >= vocab:
			return nil, fmt.Errorf("token id %d at position %d is outside the vocabulary, 0 to %d", *id, i, vocab-1)
		}
		ids[i] = *id
	}
	return ids, nil
}

// batches returns the jobs of each batch, ordered by their first ones. Prompts of a batch
// have one length: padding would move their query groups.
func (r *batchRun) batches() [][]*job {
	size := r.Many.Batch
	var prompts [][]int32
	for _, j := range r.jobs {
		prompts = append(prompts, j.ids)
	}
	if size > 1 && !(r.s.independent(prompts, r.jobs[0].att.Cache) && independentSchedule(r.jobs[0].att)) {
		fmt.Fprintln(r.std.err, "One prompt at a time: what is asked for makes the tokens of a batch depend on one another.")
		size = 1
	}
	var batches [][]*job
	open := map[int]int{} // index of the batch being filled, by prompt length
	for _, j := range r.jobs {
		at, ok := open[len(j.ids)]
		if !ok || len(batches[at]) == size {
			at = len(batches)
			batches, open[len(j.ids)] = append(batches, nil), at
		}
		batches[at] = append(batches[at], j)
	}
	return batches
}

// independentSchedule reports whether a sequence in a batch has the refreshes that it has
// alone.
func independentSchedule(att attention) bool {
	_, adaptive := att.Schedule.(pulsecol.Adaptive)
	return !adaptive
}

// checkMemory reports a batch that needs more memory than the machine has available. Of
// batches with one configuration and size that is the one with the longest prompts.
func (r *batchRun) checkMemory(batches [][]*job) error {
	var largest [][]*job
	for _, jobs := range batches {
		at := slices.IndexFunc(largest, func(other []*job) bool {
			return len(other) == len(jobs) && reflect.DeepEqual(other[0].att, jobs[0].att)
		})
		switch {
		case at < 0:
			largest = append(largest, jobs)
		case len(jobs[0].ids) > len(largest[at][0].ids):
			largest[at] = jobs
		}
	}
	for _, jobs := range largest {
		tokens := len(jobs[0].ids)
		mem, err := r.s.memory(len(jobs), tokens, jobs[0].att.Config)
		if err != nil {
			return err
		}
		if err := r.Open.checkMemory(mem, 1, tokens+r.s.newTokens()); err != nil {
			return fmt.Errorf("--prompts: %s: %w", linesOf(jobs), err)
		}
	}
	return nil
}

// run answers the prompts of jobs at once. After an interrupt it keeps the answers so far.
func (r *batchRun) run(ctx context.Context, jobs []*job) error {
	err := func() error {
		att := jobs[0].att
		var prompts [][]int32
		for _, j := range jobs {
			prompts = append(prompts, j.ids)
		}
		mem, err := r.s.memory(len(jobs), len(prompts[0]), att.Config)
		if err != nil {
			return err
		}
		limitGarbage(dataBytes(mem))
		in, err := r.kept.under(att.Config)
		if err != nil {
			return err
		}
		d := newDisplay(r.std.err, r.m, r.Watch)
		r.s.onLoad(d.load)
		results, err := r.s.generateIn(ctx, in, prompts, d.step)
		d.close()
		if len(results) == len(jobs) {
			for i, j := range jobs {
				j.out = &outcome{&results[i], results[i].OutputIDs, err != nil}
				if r.Sampler.Infill {
					j.out.output = results[i].Filled
				}
				j.batch = len(jobs)
			}
		}
		return err
	}()
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case err != nil:
		return fmt.Errorf("--prompts: line %d: %w", jobs[0].line, err)
	}
	fmt.Fprintf(r.std.err, "%s: ", linesOf(jobs))
	var outs []outcome
	for _, j := range jobs {
		outs = append(outs, *j.out)
	}
	printRun(r.std.err, r.m, jobs[0].att, outs...)
	return nil
}

// linesOf names the lines of jobs.
func linesOf(jobs []*job) string {
	const most = 8
	var numbers []string
	for _, j := range jobs[:min(len(jobs), most)] {
		numbers = append(numbers, fmt.Sprint(j.line))
	}
	text := "line " + strings.Join(numbers, ", ")
	if len(jobs) > most {
		text += fmt.Sprintf(" and %d more", len(jobs)-most)
	}
	return text
}

// print prints the finished answers whose predecessors are printed, or with all every
// finished answer.
func (r *batchRun) print(all bool) error {
	for ; r.printed < len(r.jobs); r.printed++ {
		j := r.jobs[r.printed]
		switch {
		case j.out == nil && all:
			continue
		case j.out == nil:
			return nil
		}
		if err := r.printJob(j, r.std.out); err != nil {
			return err
		}
	}
	return nil
}

func (r *batchRun) printJob(j *job, w io.Writer) error {
	if r.JSON {
		g, err := describe(r.m, j.att, r.Sampler.Seed, *j.out)
		if err != nil {
			return err
		}
		return printJSON(w, numbered{j.index, j.line, j.batch, g})
	}
	text, err := answerText(r.m, *j.out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "==> line %d <==\n%s\n\n", j.line, text)
	return err
}
