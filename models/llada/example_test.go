package llada_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/models/llada"
)

// A generation from token ids. The model of this directory is small and random, and has no
// tokenizer; with one, Encode or EncodeChat makes the prompt and Decode the text.
func Example() {
	m, err := llada.Open("../../testdata/llada")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	res, err := m.Generate(context.Background(), []int32{17, 4, 32, 8},
		pulsecol.Config{Sparsity: 0.5, Schedule: pulsecol.Uniform{Eta: 0.5, Refreshes: 3}},
		llada.GenerateOptions{GenLength: 32, BlockLength: 16, Steps: 16, SuppressMask: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(res.OutputIDs), "tokens in", res.Steps, "steps, refreshed at", res.RefreshSteps)
	// Output:
	// 32 tokens in 16 steps, refreshed at [1 4 8]
}
