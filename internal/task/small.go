package task

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// small is a task that the small models were trained on, with held-out questions. Its prompts are
// formed as in train/heldout.py: a single question, or one behind as many solved examples or
// sentences as make up a given number of tokens.
type small struct {
	name    string
	length  int // of the prompt in tokens; 0 for a single question
	seed    uint64
	tokens  func(string) int
	prompt  func(r *rand.Rand, length int, tokens func(string) int) (piece, bool)
	correct func(output, answer string) bool
}

func smallMakers() []maker {
	one := func(name string, draw func(*rand.Rand) piece, correct func(output, answer string) bool) maker {
		return maker{name, lengthAllowed, func(length int, o Options) (Task, error) {
			prompt := func(r *rand.Rand, length int, tokens func(string) int) (piece, bool) {
				if length == 0 {
					return draw(r), true
				}
				return fewShot(r, draw, length, tokens)
			}
			return &small{name, length, o.Seed, memo(o.Count), prompt, correct}, nil
		}}
	}
	retrieval := func(length int, o Options) (Task, error) {
		return &small{"retrieval", length, o.Seed, memo(o.Count), hiddenNumbers, sameText}, nil
	}
	draw1 := func(r *rand.Rand) piece { return choose(r, heldOutArithmetic1()) }
	draw2 := func(r *rand.Rand) piece { return choose(r, heldOutArithmetic2()) }
	return []maker{
		{"retrieval", lengthRequired, retrieval},
		one("lists", func(r *rand.Rand) piece { return choose(r, heldOutLists()) }, sameText),
		one("arithmetic", func(r *rand.Rand) piece { return choose(r, []func(*rand.Rand) piece{draw1, draw2})(r) }, sameResult),
		one("arithmetic1", draw1, sameResult),
		one("arithmetic2", draw2, sameResult),
	}
}

func (t *small) Name() string   { return resultName(t.name, t.length) }
func (t *small) Chat() bool     { return false }
func (t *small) GenLength() int { return 0 }
func (t *small) Len() int       { return math.MaxInt }

// attempts bounds the search for a prompt of an exact length. One in thirty is of that length, so
// the search never ends here unless there is no such prompt.
const attempts = 2000

// Sample's prompt has exactly the task's length where the tokens of its parts add up to those of
// the whole, as with the small models' tokenizer. With other tokenizers it is at most that long.
func (t *small) Sample(i int) (Sample, error) {
	if err := checkIndex(t.Name(), i, t.Len()); err != nil {
		return Sample{}, err
	}
	r := stream(t.seed, t.name, i)
	for range attempts {
		p, ok := t.prompt(r, t.length, t.tokens)
		if ok && (t.length == 0 || t.tokens(p.text) <= t.length) {
			return Sample{ID: strconv.Itoa(i), Prompt: p.text, Answers: []string{strings.TrimSpace(p.answer)}}, nil
		}
	}
	return Sample{}, fmt.Errorf("task: %s: no prompt of %d tokens found: a question alone takes more, or is never that long", t.Name(), t.length)
}

func (t *small) Score(s Sample, output string) float64 {
	if t.correct(output, s.Answers[0]) {
		return 1
	}
	return 0
}

// memo counts every short text once: prompts are put together from the same pieces again and
// again.
func memo(count Count) func(string) int {
	var known sync.Map
	return func(text string) int {
		const short = 400
		if len(text) > short {
			return count(text)
		}
		if n, ok := known.Load(text); ok {
			return n.(int)
		}
		n := count(text)
		known.Store(text, n)
		return n
	}
}

// fewShot makes a prompt of solved examples and a question. It fails if no question of the stream
// drawn ends at the given length.
func fewShot(r *rand.Rand, draw func(*rand.Rand) piece, length int, tokens func(string) int) (piece, bool) {
	var before strings.Builder
	for used := 0; used < length; {
		p := draw(r)
		if used+tokens(p.text) == length {
			return piece{before.String() + p.text, p.answer}, true
		}
		solved := p.text + p.answer + "\n"
		before.WriteString(solved)
		used += tokens(solved)
	}
	return piece{}, false
}

// mostNeedles is how many numbers a text hides at most.
const mostNeedles = 6

// hiddenNumbers makes a prompt of filler sentences with one to six magic numbers among them, and a
// question about one. It fails if the sentences drawn do not fill the given length.
func hiddenNumbers(r *rand.Rand, length int, tokens func(string) int) (piece, bool) {
	const begin = "Text:"
	keys := chooseDistinct(r, magicKeys, 1+r.IntN(mostNeedles))
	question := "\n" + asked(magicQuestion(keys[0]), "").text
	room := length - tokens(begin) - tokens(question)
	var needles []string
	for _, key := range keys {
		first := slices.Index(magicKeys, key) * needlesPerKey
		needles = append(needles, choose(r, heldOutNeedles()[first:first+needlesPerKey]).text)
		room -= tokens(needles[len(needles)-1])
	}
	var sentences []string
	for room > 0 {
		sentences = append(sentences, choose(r, heldOutFiller()).text)
		room -= tokens(sentences[len(sentences)-1])
	}
	if room != 0 {
		return piece{}, false
	}
	answer := needles[0]
	return piece{begin + strings.Join(hide(r, sentences, needles), "") + question, answer}, true
}

// hide puts needles among sentences at random places, in random order.
func hide(r *rand.Rand, sentences, needles []string) []string {
	at := make([]int, len(needles)) // needle i stands before sentence at[i]
	for i := range at {
		at[i] = r.IntN(len(sentences) + 1)
	}
	slices.Sort(at)
	out := make([]string, 0, len(sentences)+len(needles))
	for i, j := range r.Perm(len(needles)) {
		out = append(out, sentences[len(out)-i:at[i]]...)
		out = append(out, needles[j])
	}
	return append(out, sentences[len(out)-len(needles):]...)
}
