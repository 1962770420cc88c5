// Package checkpoint reads a model directory: configuration, tokenizer, chat template
// and weights.
package checkpoint
