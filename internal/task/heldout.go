package task

import (
	"fmt"
	"slices"
	"sync"
)

// The held-out questions of train/heldout.py. Training excludes exactly these texts, so
// questions for the small models have to be taken from them.

// piece is a text of which prompts are made: a question with its answer, or a sentence.
type piece struct {
	text   string // "Q: ...\nA:", or a sentence that begins with a space
	answer string // begins with a space, since it follows the text; empty for sentences
}

// heldOut makes count texts of one kind, chunk of them from one seed, as train/heldout.py does: once,
// when they are first needed.
func heldOut(kind string, count, chunk int, text func(r *pyRandom, i int) piece) func() []piece {
	return sync.OnceValue(func() []piece {
		pieces := make([]piece, count)
		var r *pyRandom
		for i := range pieces {
			if i%chunk == 0 {
				r = newPyRandom(fmt.Sprintf("held out %s %d", kind, i))
			}
			pieces[i] = text(r, i)
		}
		return pieces
	})
}

const (
	heldOutChunk = 10_000
	perKey       = 100 // sentences of each key, for the kinds that are made key by key
)

var (
	heldOutArithmetic1 = heldOut("arithmetic1", 10_000, heldOutChunk, func(r *pyRandom, _ int) piece { return asked(arithmeticQuestion(r, 1)) })
	heldOutArithmetic2 = heldOut("arithmetic2", 20_000, heldOutChunk, func(r *pyRandom, _ int) piece { return asked(arithmeticQuestion(r, 2)) })
	heldOutLists       = heldOut("lists", 20_000, heldOutChunk, func(r *pyRandom, _ int) piece { return asked(listQuestion(r)) })
	heldOutFiller      = heldOut("filler", 10_000, heldOutChunk, func(r *pyRandom, _ int) piece { return piece{text: " " + filler(r)} })
	heldOutNeedles     = heldOut("needles", perKey*len(magicKeys), perKey*len(magicKeys), func(r *pyRandom, i int) piece {
		return piece{text: " " + needleSentence(magicKeys[i/perKey], magicNumber(r))}
	})
	heldOutAssignments = heldOut("assignments", perKey*len(magicKeys), perKey*len(magicKeys), func(r *pyRandom, i int) piece {
		return piece{text: " " + assignmentSentence(magicKeys[i/perKey], magicNumber(r))}
	})
)

// ofKey returns those of one key among sentences that are made key by key.
func ofKey(sentences []piece, key string) []piece {
	return sentences[slices.Index(magicKeys, key)*perKey:][:perKey]
}

// asked puts a question into the form of the small models' training.
func asked(question, answer string) piece {
	return piece{text: "Q: " + question + "\nA:", answer: " " + answer}
}
