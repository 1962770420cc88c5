// Package compat makes gorgonia.org/cu compile and link with CUDA 12 and 13 and
// with cuDNN 9. It is two headers that stand before those of CUDA and cuDNN on the
// include path, which the command cudaop/cudaenv sets, and declare what newer
// versions changed or removed; older versions see no difference. The headers in
// stub are for type checks on machines without CUDA.
package compat
