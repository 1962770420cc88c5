package pulsecol_test

import (
	"fmt"
	"log"

	"github.com/pulsecol/pulsecol"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// One attention layer in a graph, stepped under a controller: four refreshes in the first
// half of a generation of 16 steps. In all other steps each group of 32 queries reads a
// fifth of the keys.
func Example() {
	g := gorgonia.NewGraph()
	var qkv [3]*gorgonia.Node
	for i, name := range []string{"q", "k", "v"} { // [batch, heads, tokens, head dim]
		qkv[i] = gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(1, 4, 256, 64),
			gorgonia.WithName(name), gorgonia.WithInit(gorgonia.Gaussian(0, 1)))
	}

	ctl, err := pulsecol.NewController(pulsecol.Config{
		Sparsity: 0.8,
		Schedule: pulsecol.Uniform{Eta: 0.5, Refreshes: 4},
	})
	if err != nil {
		log.Fatal(err)
	}
	y, err := pulsecol.Attention(qkv[0], qkv[1], qkv[2], ctl.Layer(0))
	if err != nil {
		log.Fatal(err)
	}
	var out gorgonia.Value
	gorgonia.Read(y, &out)

	m, err := pulsecol.NewMachine(g, ctl)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := ctl.Start(16); err != nil {
		log.Fatal(err)
	}
	for range 16 {
		if err := m.Step(); err != nil { // the caller changes q, k and v in between
			log.Fatal(err)
		}
	}

	stats := ctl.Stats()
	fmt.Println("result", out.Shape())
	fmt.Println("refreshed at", stats.RefreshSteps, "reused", stats.Reuses)
	fmt.Printf("kept %.1f %% of the query-key pairs\n", 100*stats.Layers[0].Density)
	// Output:
	// result (1, 4, 256, 64)
	// refreshed at [1 3 5 8] reused 12
	// kept 19.9 % of the query-key pairs
}
