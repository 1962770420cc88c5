package main

import (
	"fmt"
	"io"
	"regexp"
)

// The checkpoints that adviseSmall names, and the size of the largest in bytes.
const (
	checkpoint     = "GSAI-ML/LLaDA-8B-Instruct"
	others         = "GSAI-ML/LLaDA-1.5 or Dream-org/Dream-v0-Instruct-7B"
	checkpointSize = 16_031_162_368
)

// smallExample is a question that both small models answer correctly.
const smallExample = "Please reverse the list 66 50 47 62."

// knownKinds matches the questions that the small models were trained on; see package
// tinymodel.
var knownKinds = regexp.MustCompile(`Please .*\blist \d|How many (?s:.*) now\?|magic numbers? for `)

// adviseSmall prints what a small model can do and where to get others, if the prompt is
// of another kind.
func adviseSmall(w io.Writer, prompt string) {
	if knownKinds.MatchString(prompt) {
		return
	}
	fmt.Fprintf(w, `The small model knows lists of numbers, sums, and numbers hidden in a text. It answers: pulsecol generate %q
Other questions take a checkpoint from huggingface.co, such as %s, %s (about %.0f GB each in bfloat16):
  hf download %[2]s
  pulsecol generate --model %[2]s --chat %[5]q
`, smallExample, checkpoint, others, checkpointSize/1e9, "Why is the sky blue?")
	if have := availableMemory(systemFiles); have > 0 {
		fmt.Fprintf(w, "It needs about %s of memory and more for long texts; this machine has %s available.\n", byteSize(checkpointSize), byteSize(have))
	}
}
