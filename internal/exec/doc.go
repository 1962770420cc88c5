// Package exec is the contract between the operators of package op, their CUDA
// implementations in package cudaop and the controller that steps them. Users of these
// packages do not see it.
//
//   - An [Operator] tells by its Spec what it was made with. Package cudaop finds the CUDA
//     implementation by the type of the Spec.
//   - A [Plan] is the memory of a graph's operators, made before the first run. Each
//     operator asks a [Run] for the memory of one run, and takes it from its [Placement].
//   - A [Step] is the denoising step in progress. A [State] is what an attention layer keeps
//     from step to step.
package exec
