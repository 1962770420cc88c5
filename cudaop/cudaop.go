// Package cudaop gives the operators of package op an implementation on NVIDIA
// GPUs, as CUDA extern operators of Gorgonia's own cuda build.
//
// Operators for the GPU are Go types of their own, made by Wrap, because any
// operator with a CUDADo method always runs on the GPU under -tags cuda; an
// operator of package op stays on the CPU in every build.
package cudaop

import "errors"

// Errors that callers may test for with errors.Is.
var (
	// ErrUnavailable is wrapped by the errors of Available.
	ErrUnavailable = errors.New("CUDA is not available")
	// ErrMemory: the GPU has too little memory. The machine may continue with smaller graphs,
	// or be closed and replaced.
	ErrMemory = errors.New("out of GPU memory")
)
