package cudaop

import "fmt"

// Need is the GPU memory that a graph takes, in bytes.
type Need struct {
	Weights     int64 // in their type on the GPU
	Columns     int64 // the column tables of all layers with their counts, and one that is being made
	Cache       int64 // keys and values of all layers, with the columns of a block
	Scores      int64 // of a refresh, in one layer
	Activations int64 // other memory of the operators: values between them, and scratch
	Machine     int64 // Gorgonia's own: the graph's inputs and results
}

// Held is the memory of the operators: all but Gorgonia's part.
func (n Need) Held() int64 { return n.Weights + n.Columns + n.Cache + n.Scores + n.Activations }

// Total is the sum of the parts.
func (n Need) Total() int64 { return n.Held() + n.Machine }

// gib writes a number of bytes.
func gib(bytes int64) string { return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30)) }
