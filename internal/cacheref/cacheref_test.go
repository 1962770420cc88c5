package cacheref_test

import (
	"context"
	"testing"

	"github.com/pulsecol/pulsecol/internal/cacheref"
	"github.com/pulsecol/pulsecol/internal/sampler"
)

// generator is a sampler.
type generator interface {
	Generate(ctx context.Context, prompts [][]int32, forward sampler.Forward) (*sampler.Result, error)
}

var models = map[string]*cacheref.Model{}

func llada(t *testing.T) *cacheref.Model {
	t.Helper()
	if models["llada"] == nil {
		models["llada"] = cacheref.LLaDA(t)
	}
	return models["llada"]
}

func dream(t *testing.T) *cacheref.Model {
	t.Helper()
	if models["dream"] == nil {
		models["dream"] = cacheref.Dream(t)
	}
	return models["dream"]
}
