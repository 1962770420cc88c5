// Package task holds questions with known answers, and the rules that mark answers.
//
// There are three families. The built-in tasks are the ones that the small models were trained on
// (small.go, after train/tasks.py); they need no files. GSM8K and HumanEval read the files that
// their authors publish. The tasks of RULER are made from a seed, some of them from texts in a
// user's folder.
//
// A task has questions and a rule for marking answers. It does not depend on a model: the caller
// tokenizes prompts, and gives a [Count] to tasks of a given length.
package task

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Turn is one message of a chat.
type Turn struct {
	Role string // "user" or "assistant"
	Text string
}

// Sample is one question.
type Sample struct {
	ID      string   // names the sample in results: "17", "HumanEval/3"
	Prompt  string   // the text to continue; for chat tasks the last user turn
	History []Turn   // earlier turns of a chat task: solved examples
	Prefix  string   // beginning of the answer: follows the chat template, is not part of the output
	Answers []string // references
}

// Task is a set of questions of one kind.
type Task interface {
	// Name is the task's name in results: "retrieval-1024", "gsm8k", "ruler-niah_single_1-4096".
	Name() string

	// Chat reports whether prompts are turns of a chat, to which a checkpoint's template applies.
	Chat() bool

	// GenLength is the number of tokens of an answer; 0 means the model's default.
	GenLength() int

	// Len is the number of samples, math.MaxInt where they are made from the seed.
	Len() int

	// Sample returns sample i, 0 <= i < Len. It depends only on i and the task's seed, and is safe
	// for concurrent use.
	Sample(i int) (Sample, error)

	// Score marks an output for s, from 0 to 1. It is NaN for tasks without marks (HumanEval).
	Score(s Sample, output string) float64
}

// Count returns the number of tokens of a text. Tasks of a given length call it, from several
// goroutines at once if samples are asked for by several.
type Count func(text string) int

// Options are the sources of a task's questions.
type Options struct {
	Seed  uint64
	Count Count // required by tasks of a given length

	// Data is the user's folder, or the one file that a task reads. In a folder, a task looks for the
	// first of these names, any of which may be packed with gzip:
	//
	//	gsm8k            gsm8k.jsonl, test.jsonl
	//	humaneval        HumanEval.jsonl.gz, HumanEval.jsonl
	//	ruler/qa_1       squad.json, dev-v2.0.json
	//	ruler/qa_2       hotpotqa.json, hotpot_dev_distractor_v1.json
	//	essay haystacks  PaulGrahamEssays.json ({"text": ...}), all other *.txt
	//	other RULER      adjectives.txt, nouns.txt, verbs.txt, one word a line, in place of our lists
	//
	// Essay haystacks are those of ruler/niah_single_2, niah_single_3, niah_multikey_1,
	// niah_multivalue and niah_multiquery.
	Data string

	// Exemplars is a JSON file, an array of {"question", "answer"}: the solved examples that stand
	// before a question of GSM8K, as turns of the chat. Without it there are none.
	Exemplars string
}

// lengthRule says whether a task's name may be followed by a length in tokens.
type lengthRule int

const (
	noLength lengthRule = iota
	lengthAllowed
	lengthRequired
)

// maker is an entry of the list of tasks.
type maker struct {
	name   string
	length lengthRule
	make   func(length int, o Options) (Task, error)
}

// makers lists the tasks in the order of [Names].
func makers() []maker {
	return slices.Concat(smallMakers(), []maker{
		{"gsm8k", noLength, makeGSM8K},
		{"humaneval", noLength, makeHumanEval},
	}, rulerMakers())
}

// Names lists the names that [New] accepts, without lengths.
func Names() []string {
	var names []string
	for _, m := range makers() {
		names = append(names, m.name)
	}
	return names
}

// maxLength bounds the length of a prompt. It is far above what any model takes; it keeps a
// mistyped length from filling the memory.
const maxLength = 1 << 22

// New makes the task of a spec: a name from [Names], and for tasks of a given length "@" and the
// number of tokens, such as "retrieval@1024", "lists@600", "gsm8k" or "ruler/vt@4096". The length
// of a built-in task is that of its prompt. The length of a RULER task is that of prompt and answer
// together, as in RULER.
//
// New reads the files and makes sample 0 once, so that errors occur before an evaluation.
func New(spec string, o Options) (Task, error) {
	name, length, err := parseSpec(spec)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(makers(), func(m maker) bool { return m.name == name })
	if i < 0 {
		return nil, fmt.Errorf("task: %q: no task %q; there are %s", spec, name, strings.Join(Names(), ", "))
	}
	m := makers()[i]
	switch {
	case m.length == noLength && length > 0:
		return nil, fmt.Errorf("task: %q: %s has no length", spec, name)
	case m.length == lengthRequired && length == 0:
		return nil, fmt.Errorf("task: %q: want a length in tokens, such as %s@4096", spec, name)
	case length > 0 && o.Count == nil:
		return nil, fmt.Errorf("task: %q: a length in tokens needs a tokenizer that counts them", spec)
	}
	t, err := m.make(length, o)
	if err != nil {
		return nil, fmt.Errorf("task: %s: %w", spec, err)
	}
	if _, err := t.Sample(0); err != nil {
		return nil, err
	}
	return t, nil
}

func parseSpec(spec string) (name string, length int, err error) {
	name, tokens, given := strings.Cut(spec, "@")
	if !given {
		return name, 0, nil
	}
	length, err = strconv.Atoi(tokens)
	if err != nil || length < 1 || length > maxLength {
		return "", 0, fmt.Errorf("task: %q: length %q, want a number of tokens from 1 to %d", spec, tokens, maxLength)
	}
	return name, length, nil
}

// resultName is the name of a task with a length in results.
func resultName(name string, length int) string {
	name = strings.ReplaceAll(name, "/", "-")
	if length == 0 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, length)
}

// stream returns the random numbers of one sample. Streams of different samples, tasks and seeds
// are independent.
func stream(seed uint64, task string, sample int) *rand.Rand {
	var key [32]byte
	name := sha256.Sum256([]byte(task))
	copy(key[16:], name[:])
	binary.LittleEndian.PutUint64(key[0:], seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(sample))
	return rand.New(rand.NewChaCha8(key))
}

// randomElement returns a uniformly drawn element of from.
func randomElement[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// selectDistinct returns n different elements of from in random order.
func selectDistinct[T any](r *rand.Rand, from []T, n int) []T {
	order := r.Perm(len(from))[:n]
	out := make([]T, n)
	for i, j := range order {
		out[i] = from[j]
	}
	return out
}

// checkIndex is the error of Sample for an index outside [0, n).
func checkIndex(task string, i, n int) error {
	if i < 0 || i >= n {
		return fmt.Errorf("task: %s: sample %d of %d", task, i, n)
	}
	return nil
}
