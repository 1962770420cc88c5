package task

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Variable tracking: "VAR ABCDE = 12345", "VAR FGHIJ = VAR ABCDE" and so on among lines of noise;
// the answer is all variables that hold a value. A solved example precedes the question.
const (
	vtHops          = 4
	vtLetters       = 5
	vtExampleLength = 500 // tokens, with the budget of an answer
)

func makeVariableTracking(t *ruler, _ Options) error {
	t.genLength = vtGenLength
	t.size = textSize{10, 10, t.length} // lines of noise
	size := textSize{5, 5, vtExampleLength}
	lines, err := size.largest(vtExampleLength-vtGenLength, func(n int) int {
		return t.count(vtExample(stream(t.seed, t.name, 0), n))
	})
	if err != nil { // with a tokenizer of tiny vocabulary; RULER takes the shortest example then
		lines = size.start
	}
	t.text = func(r *rand.Rand, _, n int) rulerText {
		example := vtExample(r, lines)
		text := vtQuestion(r, n, vtLetters)
		text.prompt = example + text.prompt
		return text
	}
	return nil
}

func vtExample(r *rand.Rand, lines int) string {
	e := vtQuestion(r, lines, 3)
	return e.prompt + e.prefix + " " + strings.Join(e.answers, " ") + "\n\n"
}

func vtQuestion(r *rand.Rand, lines, letters int) rulerText {
	var names []string
	for len(names) <= vtHops {
		if name := randomWord(r, 'A', letters); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	value := 10000 + r.IntN(89999)
	chain := []string{fmt.Sprintf("VAR %s = %d", names[0], value)}
	for i := range vtHops {
		chain = append(chain, fmt.Sprintf("VAR %s = VAR %s ", names[i+1], names[i]))
	}
	context := strings.Join(insertAt(r, slices.Repeat([]string{noise + "\n"}, lines), chain), " ")
	return rulerText{
		prompt: fmt.Sprintf("Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n%s\n"+
			"Question: Find all variables that are assigned the value %d in the text above.", context, value),
		prefix: fmt.Sprintf(" Answer: According to the chain(s) of variable assignment in the text above, "+
			"%d variables are assgined the value %d, they are: ", len(names), value), // RULER's spelling
		answers: names,
	}
}

// randomWord is a word of n of the 26 letters that begin with first.
func randomWord(r *rand.Rand, first byte, n int) string {
	word := make([]byte, n)
	for i := range word {
		word[i] = first + byte(r.IntN(26))
	}
	return string(word)
}
