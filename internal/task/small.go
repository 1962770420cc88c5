package task

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// small is a task that the small models were trained on, with held-out questions. Its prompts are
// formed as in train/heldout.py: a single question, or one that follows as many solved examples or
// sentences as make up a given number of tokens.
type small struct {
	name    string
	length  int // of the prompt in tokens; 0 for a single question
	seed    uint64
	tokens  Count
	prompt  prompter
	correct func(output, answer string) bool
}

// prompter draws a prompt that ends in a question, with its answer. It fails if what it drew is not
// of the given length.
type prompter func(r *rand.Rand, length int, tokens Count) (p piece, ok bool)

func smallMakers() []maker {
	one := func(name string, draw func(*rand.Rand) piece, correct func(output, answer string) bool) maker {
		return maker{name, lengthAllowed, func(length int, o Options) (Task, error) {
			prompt := func(r *rand.Rand, length int, tokens Count) (piece, bool) {
				if length == 0 {
					return draw(r), true
				}
				return fewShot(r, draw, length, tokens)
			}
			return &small{name, length, o.Seed, memo(o.Count), prompt, correct}, nil
		}}
	}
	inText := func(name string, prompt prompter) maker {
		return maker{name, lengthRequired, func(length int, o Options) (Task, error) {
			return &small{name, length, o.Seed, memo(o.Count), prompt, sameText}, nil
		}}
	}
	draw1 := func(r *rand.Rand) piece { return randomElement(r, heldOutArithmetic1()) }
	draw2 := func(r *rand.Rand) piece { return randomElement(r, heldOutArithmetic2()) }
	return []maker{
		inText("retrieval", retrieval),
		inText("multiquery", multiquery),
		inText("tracking", tracking),
		one("lists", func(r *rand.Rand) piece { return randomElement(r, heldOutLists()) }, sameText),
		one("arithmetic", func(r *rand.Rand) piece { return randomElement(r, []func(*rand.Rand) piece{draw1, draw2})(r) }, sameResult),
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

// memo caches the counts of short texts, because prompts consist of the same pieces. Every text
// counts at least one token, so that filling a prompt always ends.
func memo(count Count) Count {
	const short = 400 // bytes
	var known sync.Map
	return func(text string) int {
		if n, ok := known.Load(text); ok {
			return n.(int)
		}
		n := max(count(text), 1)
		if len(text) <= short {
			known.Store(text, n)
		}
		return n
	}
}

// fewShot makes a prompt of solved examples and a question.
func fewShot(r *rand.Rand, draw func(*rand.Rand) piece, length int, tokens Count) (piece, bool) {
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

// Upper limits of what a text hides.
const (
	mostNeedles = 6 // magic numbers
	mostAsked   = 4 // of them in one question
	mostChains  = 4 // chains of assignments
	mostNames   = 5 // names in a chain
)

// retrieval asks for one of one to six magic numbers in a text.
func retrieval(r *rand.Rand, length int, tokens Count) (piece, bool) {
	keys := selectDistinct(r, magicKeys, 1+r.IntN(mostNeedles))
	needles := drawNeedles(r, keys)
	question := asked(magicQuestion(keys[0]), "")
	return inText(r, length, tokens, needles, piece{question.text, needles[0][0]})
}

// multiquery asks for two to four of four to six magic numbers in a text.
func multiquery(r *rand.Rand, length int, tokens Count) (piece, bool) {
	keys := selectDistinct(r, magicKeys, mostAsked+r.IntN(mostNeedles-mostAsked+1))
	needles := drawNeedles(r, keys)
	n := 2 + r.IntN(mostAsked-1)
	var values []string
	for _, needle := range needles[:n] {
		values = append(values, lastWord(needle[0]))
	}
	return inText(r, length, tokens, needles, asked(multiqueryQuestion(keys[:n]), strings.Join(values, ", ")+"."))
}

// tracking asks for all names of one of two to four chains of two to five names in a text. The
// small models were trained on it and have not learned it.
func tracking(r *rand.Rand, length int, tokens Count) (piece, bool) {
	keys := selectDistinct(r, magicKeys, mostChains*mostNames)
	var chains [][]string
	var question piece
	numbers := map[string]bool{}
	for i := range 2 + r.IntN(mostChains-1) {
		names := keys[i*mostNames:][:2+r.IntN(mostNames-1)]
		first := randomElement(r, ofKey(heldOutAssignments(), names[0]))
		chain := []string{first.text}
		for j, name := range names[1:] {
			chain = append(chain, " "+linkSentence(name, names[j]))
		}
		chains = append(chains, chain)
		number := lastWord(first.text)
		if i == 0 {
			question = asked(trackingQuestion(number), strings.Join(names, ", ")+".")
		}
		if numbers[number] { // two chains with one number would both be right
			return piece{}, false
		}
		numbers[number] = true
	}
	return inText(r, length, tokens, chains, question)
}

// drawNeedles draws a magic number for every key, each a chain of one sentence.
func drawNeedles(r *rand.Rand, keys []string) [][]string {
	needles := make([][]string, len(keys))
	for i, key := range keys {
		needles[i] = []string{randomElement(r, ofKey(heldOutNeedles(), key)).text}
	}
	return needles
}

// inText makes a prompt of filler sentences, with the sentences of every chain hidden among them in
// order, and a question at the end.
func inText(r *rand.Rand, length int, tokens Count, chains [][]string, question piece) (piece, bool) {
	const begin = "Text:"
	end := "\n" + question.text
	room := length - tokens(begin) - tokens(end)
	for _, sentence := range slices.Concat(chains...) {
		room -= tokens(sentence)
	}
	var sentences []string
	for room > 0 {
		sentences = append(sentences, randomElement(r, heldOutFiller()).text)
		room -= tokens(sentences[len(sentences)-1])
	}
	if room != 0 {
		return piece{}, false
	}
	return piece{begin + strings.Join(hide(r, sentences, chains), "") + end, question.answer}, true
}

// hide inserts the sentences of chains at random places among others, those of one chain in order.
func hide(r *rand.Rand, others []string, chains [][]string) []string {
	type placed struct {
		at       float64 // from 0 to the number of others
		sentence string
	}
	var hidden []placed
	for _, chain := range chains {
		places := make([]float64, len(chain))
		for i := range places {
			places[i] = r.Float64() * float64(len(others)+1)
		}
		slices.Sort(places)
		for i, sentence := range chain {
			hidden = append(hidden, placed{places[i], sentence})
		}
	}
	slices.SortStableFunc(hidden, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	var out []string
	from := 0
	for _, h := range hidden {
		to := int(h.at)
		out = append(append(out, others[from:to]...), h.sentence)
		from = to
	}
	return append(out, others[from:]...)
}

// lastWord is the last word of a sentence, without its full stop.
func lastWord(sentence string) string {
	return strings.TrimSuffix(sentence[strings.LastIndexByte(sentence, ' ')+1:], ".")
}
