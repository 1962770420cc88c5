// Package compat makes gorgonia.org/cu compile and link with CUDA 12 and 13 and
// with cuDNN 9, and makes all its contexts the GPU's primary one. It is two headers that
// stand before those of CUDA and cuDNN on the include path, which the command
// cudaop/cudaenv sets, and declare what newer versions changed or removed. The headers in
// stub are for type checks on machines without CUDA.
package compat
