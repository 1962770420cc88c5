//go:build cuda

package cudaop

// SetPortable says whether machines made from now on use the kernels for any GPU
// even where there are special ones.
func SetPortable(on bool) { portable = on }
