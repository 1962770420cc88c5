// Package op holds the Gorgonia operators of PulseCol on the CPU: the three
// that make column-sparse attention (ScoreCollect, GroupTopK,
// ColumnSparseAttn), DenseAttn, the layers a transformer needs around them, and collectives
// over the processes of a run.
//
// # Values
//
// Operators take and return contiguous float32 tensors; token ids and positions
// are int32, column tables uint32 bitmaps. Shapes use these letters: B batch
// rows, N tokens, H query heads, D head dimension, U query groups.
//
// Products are float32 unless [AttentionParams] or a [Weight] say [BFloat16] or
// [Int16]: then both operands of every product are rounded; or a quantized Weight says
// [Int8]: then its inputs are.
//
// # Identity
//
// Gorgonia merges two nodes whose operators hash alike. Every operator here
// therefore carries a name, the path of its place in the model, and hashes it
// with all its parameters. [Apply] reports a merge that would drop a parameter
// that the hash cannot see, such as another weight under the same name.
//
// # Who owns a result
//
// Without a [Workspace] every result is fresh memory. With one, a result is
// reused as soon as its last reader has run, so it must be read with
// gorgonia.Read, which [Workspace.Plan] sees and respects.
//
// The table that GroupTopK returns in a controller's layer is the layer's own, not a copy,
// and a placeholder of one word before the first refresh. Controller.Columns of package
// pulsecol copies it; [Check] reports consumers that may overwrite it.
//
// # Gradients
//
// DenseAttn and ColumnSparseAttn are differentiable in q, k and v; the columns
// and the padding mask are held fixed. Layers are differentiable in their float32 inputs.
// Weights in an operator are constants, quantized ones too; the operators TrainedLinear,
// TrainedRMSNorm, TrainedEmbed and TrainedLMHead have them as inputs. Products of gradients
// are float32. ScoreCollect, KVCache, collectives and attention over cached keys return
// [ErrNoGradient], from [Grad] or gorgonia.Grad when the graph is built and from the backward pass
// of a Lisp machine.
//
// A gradient is an operator for each input of the layer. It reads those inputs of the layer
// that it depends on, which therefore stay in memory from the forward to the backward pass:
// x for the weight of a Linear and for RMSNorm and SwiGLU, whose outputs of both projections
// are computed again; nothing for x of a Linear, RoPE, heads, sums and the choice of rows. A
// [Workspace] plans these values, the gradients and their scratch like all others, for tape
// machines.
//
// # Machines
//
// Operators work on any Gorgonia machine that hands them plain tensors; those of a
// controller's layer work on the machine that the controller is attached to. No operator
// panics: a panic inside one would end the process, so each recovers at its boundary and
// returns an error.
package op
