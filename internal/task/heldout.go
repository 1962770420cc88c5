package task

import (
	"fmt"
	"sync"
)

// The held-out questions of train/heldout.py: training excluded these very texts, so a question
// for the small models must come from here.

// piece is a text of which prompts are made: a question with its answer, or a sentence.
type piece struct {
	text   string // "Q: ...\nA:", or a sentence behind a space
	answer string // behind a space, as it follows the text; empty for sentences
}

// heldOutChunk is how many texts heldout.py makes from one seed.
const heldOutChunk = 10_000

// heldOut makes count texts of one kind as train/heldout.py does, once, when they are first
// needed.
func heldOut(kind string, count int, make1 func(r *pyRandom, i int) piece) func() []piece {
	return sync.OnceValue(func() []piece {
		pieces := make([]piece, count)
		var r *pyRandom
		for i := range pieces {
			if i == 0 || kind != "needles" && i%heldOutChunk == 0 { // needles are made key by key, from one seed
				r = newPyRandom(fmt.Sprintf("held out %s %d", kind, i))
			}
			pieces[i] = make1(r, i)
		}
		return pieces
	})
}

// needlesPerKey is how many magic numbers each key has.
const needlesPerKey = 100

var (
	heldOutArithmetic1 = heldOut("arithmetic1", 10_000, func(r *pyRandom, _ int) piece { return asked(arithmeticQuestion(r, 1)) })
	heldOutArithmetic2 = heldOut("arithmetic2", 20_000, func(r *pyRandom, _ int) piece { return asked(arithmeticQuestion(r, 2)) })
	heldOutLists       = heldOut("lists", 20_000, func(r *pyRandom, _ int) piece { return asked(listQuestion(r)) })
	heldOutFiller      = heldOut("filler", 10_000, func(r *pyRandom, _ int) piece { return piece{text: " " + filler(r)} })
	heldOutNeedles     = heldOut("needles", needlesPerKey*len(magicKeys), func(r *pyRandom, i int) piece {
		return piece{text: " " + magicNumber(r, magicKeys[i/needlesPerKey])}
	})
)

// asked puts a question into the form that the small models know.
func asked(question, answer string) piece {
	return piece{text: "Q: " + question + "\nA:", answer: " " + answer}
}
