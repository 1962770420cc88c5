// Package pulsecol adds PulseCol to Gorgonia: periodically refreshed
// column-sparse attention for diffusion language models (arXiv 2605.20813).
//
// A diffusion language model denoises a whole sequence in T steps, each a
// forward pass with bidirectional attention over all N tokens. PulseCol runs
// full attention in a few early steps only, its refreshes. There it averages the
// attention probabilities over groups of queries and keeps, for every head and
// group, the keys with the highest scores: the group's columns. All other steps
// attend to those columns alone.
//
// # Use
//
// A [Config] says what to keep and when to refresh. [NewController] makes the
// state of a generation from it, [Attention] adds an attention layer under the
// controller to a graph, and [NewMachine] a tape machine that steps it:
//
//	ctl, err := pulsecol.NewController(pulsecol.Config{Sparsity: 0.8})
//	y, err := pulsecol.Attention(q, k, v, ctl.Layer(0))
//	m, err := pulsecol.NewMachine(g, ctl)
//	err = ctl.Start(128)         // a generation of 128 denoising steps
//	for range 128 {
//		err = m.Step()           // dense, refresh or reuse, as the schedule says
//	}
//
// # Reset
//
// Gorgonia's Reset is called between steps, so it does not change column tables.
// [Controller.Start] begins a new generation and drops them. A [Machine] always
// runs its program from the start. When RunAll is called without Reset, a bare tape
// machine does nothing or continues at a failed instruction; a Machine resets first.
//
// # Values and aliasing
//
// Read results with gorgonia.Read. The value of a node may be overwritten by a
// later operator of the same run, by Gorgonia's own operators always, and by
// those of package op under a workspace. Column tables come from
// [Controller.Columns], as copies. Between steps the graph's UnbindAllNonInputs may
// drop the values of its nodes.
//
// # Concurrency
//
// A controller and its machines belong to one goroutine at a time. Two
// graphs with a controller each may run at the same time. One graph must not be run
// by two machines: Gorgonia binds values to nodes. [NewMachine] refuses a graph with
// layers of another controller, or in the open machine of one. It cannot detect bare tape
// machines on the graph.
package pulsecol
