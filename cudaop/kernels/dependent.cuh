// Programmatic dependent launch. A kernel marked with DEPENDENT may start before the kernels queued ahead of it have finished:
// until prerequisites_wait it must not read what they write, nor write anything. Built for GPUs before Hopper it is an
// ordinary kernel.
#pragma once

#include "common.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define DEPENDENT(NAME)                           \
  extern "C" __device__ long long NAME##_dependent; \
  __device__ long long NAME##_dependent = 1;

// prerequisites_wait waits until the kernels queued ahead have finished and their results are visible.
DEVICE void prerequisites_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// dependents_launch lets the next kernel start as soon as all blocks have called it or have finished.
DEVICE void dependents_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
#define DEPENDENT(NAME)
DEVICE void prerequisites_wait() {}
DEVICE void dependents_launch() {}
#endif
