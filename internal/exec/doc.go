// Package exec is the contract between the operators of package op, their CUDA
// implementations in package cudaop and the controller that steps them. Users of these
// packages do not see it.
//
//   - An [Operator] returns its parameters as its Spec. Package cudaop finds the CUDA
//     implementation by the type of the Spec.
//   - A [Plan] is the memory of a graph's operators, made before the first run. Each
//     operator requests the memory of one run from a [Run], and gets it from its
//     [Placement].
//   - A [Step] is the denoising step in progress. A [State] is the part of an attention
//     layer that persists from step to step.
package exec
