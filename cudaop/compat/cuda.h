/* Found before CUDA's own cuda.h, so that gorgonia.org/cu, written for CUDA 11, compiles with
   CUDA 13, and so that the contexts it makes are the one that all of a process share. */
#ifndef PULSECOL_COMPAT_CUDA_H
#define PULSECOL_COMPAT_CUDA_H

#include_next <cuda.h>

#if CUDA_VERSION >= 13000
/* CUDA 13 made these names macros for functions with other parameters. The driver
   still has the functions that cu calls, under the names declared here. */

/* The _v2 of these two take a CUmemLocation; cu names a device. */
#undef cuMemAdvise
#undef cuMemPrefetchAsync
CUresult CUDAAPI cuMemAdvise(CUdeviceptr ptr, size_t count, CUmem_advise advice, CUdevice dev);
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr ptr, size_t count, CUdevice dev, CUstream stream);

/* The _v2 of the graph functions also take edge data, which cu does not know. */
#undef cuGraphAddDependencies
#undef cuGraphRemoveDependencies
#undef cuGraphGetEdges
#undef cuGraphNodeGetDependencies
#undef cuGraphNodeGetDependentNodes
CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n);
CUresult CUDAAPI cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n);
CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n);
CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *n);
CUresult CUDAAPI cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *n);
#endif

/* Gorgonia makes a context for each machine, and memory of one context cannot be read in
   another. Machines of one process share weights and caches, so what cu makes and destroys
   is a reference to the primary context of the GPU, which CUDA's libraries use too. As
   cuCtxCreate does, making one leaves it current on the calling thread. */
static inline CUresult pulsecol_make_context(CUcontext *ctx, unsigned int flags, CUdevice dev) {
	CUresult code = cuDevicePrimaryCtxRetain(ctx, dev);
	(void)flags; /* those of the primary context hold */
	return code == CUDA_SUCCESS ? cuCtxPushCurrent(*ctx) : code;
}

static inline CUresult pulsecol_drop_context(CUcontext ctx) {
	CUcontext current = NULL;
	CUdevice dev;
	CUresult code = cuCtxPushCurrent(ctx);
	if (code != CUDA_SUCCESS) return code;
	code = cuCtxGetDevice(&dev);
	cuCtxPopCurrent(&current);
	if (code != CUDA_SUCCESS) return code;
	if (cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == ctx) cuCtxPopCurrent(&current);
	return cuDevicePrimaryCtxRelease(dev);
}

#undef cuCtxCreate
#undef cuCtxDestroy
#define cuCtxCreate pulsecol_make_context
#define cuCtxDestroy pulsecol_drop_context

#endif
