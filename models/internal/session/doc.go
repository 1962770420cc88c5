// Package session runs a model's graph step by step for a sampler and predicts the
// memory of a run.
package session
