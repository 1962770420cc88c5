// Package diffusion is what the model packages have in common: reading a model
// directory, running a graph step by step for a sampler, and counting memory.
package diffusion
