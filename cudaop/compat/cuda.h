/* Found before CUDA's own cuda.h, so that gorgonia.org/cu, written for CUDA 11,
   compiles with CUDA 13. Older versions get their own header, unchanged. */
#ifndef PULSECOL_COMPAT_CUDA_H
#define PULSECOL_COMPAT_CUDA_H

#include_next <cuda.h>

#if CUDA_VERSION >= 13000
/* CUDA 13 made these names macros for functions with other parameters. The driver
   still has the functions that cu calls, under the names declared here. */

/* cuCtxCreate_v4 takes a CUctxCreateParams; cu makes contexts without. */
#undef cuCtxCreate
#define cuCtxCreate cuCtxCreate_v2
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev);

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

#endif
