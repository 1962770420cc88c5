// Package kernel holds the arithmetic of the project, on slices:
// attention (dense, column-sparse, its scores and its gradients), the selection
// of columns, and the layers of a transformer. It does not depend on Gorgonia.
//
// # Conventions
//
// Everything is float32, row-major and contiguous unless a comment says
// otherwise; a Precision rounds operands of products within a call. B is the
// batch size, H the number of query heads, N the sequence length, D the head
// dimension and U the number of query groups.
//
// Lengths of slices are a contract, checked at the top of every function; a
// violation panics with the name of the function, the slice and both lengths.
// Values never panic: NaN in gives NaN out.
//
// Functions that compute are methods of a [Team], which spreads their work over
// goroutines and can be stopped. Every element of a result is computed by one
// goroutine in a fixed order, so results have the same bits for any number of them.
// A call like an earlier one on the same team allocates nothing.
//
// # How attention is computed
//
// Queries are taken 32 at a time, as a panel of transposed rows [D, 32]: one
// query is one lane of a vector register. Scores of a block of keys are then a
// matrix [keys, 32], and the maximum, the exponential and the sum of a softmax
// are lane-wise operations without any reduction across a register. Two
// multiplications, which read the listed rows in place, are used for q k^T, the product with
// v, all four products of the gradient, and Linear. See tile.go for the loop over keys,
// isa.go for the routines that exist in several instruction sets, and docs/cpu.md for
// measurements.
//
// Package kernel/ref is the slow reference of the same mathematics, with which the tests
// compare this package.
package kernel
