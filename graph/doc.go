// Package graph builds the pieces of a transformer as Gorgonia nodes around
// pulsecol.Attention, and checks graphs for what Gorgonia would silently compute
// wrongly.
//
// Every builder takes the path of its weight in the checkpoint, which is also
// the operator's identity in the graph. Shapes: B batch rows, N tokens, D
// features of the model.
//
// All layers have gradients on the CPU. Weights are constants unless [Block.Train],
// [Projection.Train] or [Norm.Train] makes them nodes of the graph; [Block.Adapt] adds low-rank
// adapters to constant weights.
package graph
