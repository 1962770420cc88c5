package task

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// ruler is a task of RULER (Hsieh et al., 2024; NVIDIA/RULER, Apache-2.0). The wording of prompts
// and answer prefixes is the benchmark's, including its misspelling: with another wording, results
// could not be compared. Random numbers, lists of words, the rule that splits an essay into
// sentences, and answers of whole blocks of 32 tokens differ from the benchmark, so prompts are of
// the same kind but not identical.
type ruler struct {
	name      string // without "ruler/"
	length    int    // tokens of prompt, prefix and answer
	genLength int
	samples   int
	seed      uint64
	count     Count
	size      textSize
	score     func(references []string, output string) float64

	// text makes sample i with n parts of haystack. The needles do not depend on n.
	text func(r *rand.Rand, i, n int) rulerText
}

type rulerText struct {
	prompt, prefix string
	answers        []string
}

// textSize lists the numbers of parts (words, lines, documents) of a haystack: start, start+step
// and so on up to limit.
type textSize struct{ start, step, limit int }

// The answers' budgets of RULER, rounded up to blocks of 32 tokens, which diffusion models reveal.
const (
	niahGenLength = 128
	vtGenLength   = 32  // RULER's is 30
	cweGenLength  = 128 // 120
	fweGenLength  = 64  // 50
	qaGenLength   = 32
)

func rulerMakers() []maker {
	var makers []maker
	add := func(name string, make func(t *ruler, o Options) error) {
		makers = append(makers, maker{"ruler/" + name, lengthRequired, func(length int, o Options) (Task, error) {
			t := &ruler{name: name, length: length, seed: o.Seed, count: o.Count, samples: math.MaxInt, score: matchAll}
			return t, make(t, o)
		}})
	}
	for _, variant := range niahVariants {
		add(variant.name, variant.make)
	}
	add("vt", makeVariableTracking)
	add("cwe", makeCommonWords)
	add("fwe", makeFrequentWords)
	add("qa_1", func(t *ruler, o Options) error {
		return makeDocumentQA(t, o, readSQuAD, "squad.json", "dev-v2.0.json")
	})
	add("qa_2", func(t *ruler, o Options) error {
		return makeDocumentQA(t, o, readHotpotQA, "hotpotqa.json", "hotpot_dev_distractor_v1.json")
	})
	return makers
}

func (t *ruler) Name() string   { return resultName("ruler/"+t.name, t.length) }
func (t *ruler) Chat() bool     { return true }
func (t *ruler) GenLength() int { return t.genLength }
func (t *ruler) Len() int       { return t.samples }

// Sample makes the longest text that fits: prompt and prefix, as Count counts them, and the
// answer's budget take at most the task's length, and one more step of haystack would not.
func (t *ruler) Sample(i int) (Sample, error) {
	if err := checkIndex(t.Name(), i, t.Len()); err != nil {
		return Sample{}, err
	}
	n, err := t.size.largest(t.length-t.genLength, func(n int) int { return t.tokens(t.made(i, n)) })
	if err != nil {
		return Sample{}, fmt.Errorf("task: %s: sample %d: %w", t.Name(), i, err)
	}
	text := t.made(i, n)
	return Sample{ID: strconv.Itoa(i), Prompt: text.prompt, Prefix: text.prefix, Answers: text.answers}, nil
}

// made is sample i with n parts of haystack.
func (t *ruler) made(i, n int) rulerText { return t.text(stream(t.seed, t.name, i), i, n) }

func (t *ruler) tokens(text rulerText) int { return t.count(text.prompt + text.prefix) }

func (t *ruler) Score(s Sample, output string) float64 { return t.score(s.Answers, output) }

// largest returns a size whose text costs at most budget tokens, while the next one costs more or
// is beyond the limit. Costs are nearly linear in the size, so it interpolates.
func (s textSize) largest(budget int, cost func(n int) int) (int, error) {
	steps := (s.limit - s.start) / s.step
	low, lowCost := 0, cost(s.start) // in steps
	if lowCost > budget {
		return 0, fmt.Errorf("the shortest text takes %d tokens, there is room for %d", lowCost, budget)
	}
	high := steps + 1 // the fewest that are known to be too many
	for guess := 1; low+1 < high; {
		c := cost(s.start + guess*s.step)
		perStep := max(float64(c-lowCost)/float64(guess-low), 1)
		if c <= budget {
			low, lowCost = guess, c
		} else {
			high = guess
		}
		guess = low + int(float64(budget-lowCost)/perStep)
		guess = min(max(guess, low+1), high-1)
	}
	return s.start + low*s.step, nil
}

// matchAll is RULER's string_match_all: the share of references that the output contains.
func matchAll(references []string, output string) float64 {
	output = normalize(output)
	found := 0.0
	for _, r := range references {
		if strings.Contains(output, strings.ToLower(r)) {
			found++
		}
	}
	return found / float64(len(references))
}

// matchPart is RULER's string_match_part: whether the output contains any reference.
func matchPart(references []string, output string) float64 {
	if matchAll(references, output) > 0 {
		return 1
	}
	return 0
}

// normalize prepares an output as RULER does: control characters become newlines, letters lower
// case.
func normalize(output string) string {
	return strings.ToLower(strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' {
			return '\n'
		}
		return r
	}, output)))
}

// noise is a line of RULER's "repeat" haystacks.
const noise = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."

// insertAt inserts each of added before an element of texts, in order, at different random
// indices.
func insertAt(r *rand.Rand, texts, added []string) []string {
	at := make(map[int]bool, len(added))
	for _, i := range r.Perm(len(texts))[:len(added)] {
		at[i] = true
	}
	out := make([]string, 0, len(texts)+len(added))
	for i, text := range texts {
		if at[i] {
			out = append(out, added[0])
			added = added[1:]
		}
		out = append(out, text)
	}
	return out
}
