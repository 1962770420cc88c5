// Package cacheref is the reference of generation with a cache of keys and values, and
// of columns over it: loops in float64 over the small models in testdata, written to be
// checked by reading. Samplers, operators and models are held to it in tests.
//
// # The rules
//
// Block [s, e) is the block of positions that is being filled. Its active rows begin at
// a0, which is s, or s-1 for a model whose row s-1 predicts token s. They end at e with
// a [Dual] cache and at the end of the sequence with a [Prefix] cache.
//
// A prefill is a forward of all rows. It writes the keys and values of all of them,
// after rotation. The first forward of a block is a prefill if the block's index is a
// multiple of PrefillEvery; 0 is the first block only. Every other forward computes
// active rows only. Their keys and values replace those in a Dual cache. A Prefix cache
// holds the rows before a0, which stay as they are. The first forward of a block that is
// no prefill begins at the a0 of the block before, and so commits that block's tokens.
//
// Columns are k = max(1, ⌊(1-sparsity) n⌋) of a sequence's n keys, selected for each query
// head and group of rows: those with the highest mean probability over the rows, and of
// equal ones the smallest. The main table has groups by absolute position. A refresh that
// falls due is done at the next prefill, and the first prefill is one; other prefills
// reuse the table. Block columns are those of the active rows, in groups from a0 on, and
// are selected in the first forward of a block, in which the active rows attend to all keys.
// In its other forwards they read block columns and always [a0, e).
//
// Padding on the left of a sequence is never attended to and has no part in a mean.
// Positions count it, also Dream's: attention depends on differences of positions alone.
package cacheref
