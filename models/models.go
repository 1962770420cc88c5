// Package models has the types and errors that the packages of all models share.
//
// A model is opened by the package of its architecture: [llada.Open] or [dream.Open].
//
// [llada.Open]: https://pkg.go.dev/github.com/pulsecol/pulsecol/models/llada#Open
// [dream.Open]: https://pkg.go.dev/github.com/pulsecol/pulsecol/models/dream#Open
package models

import (
	"errors"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"gorgonia.org/gorgonia"
)

// Errors that callers may test for with errors.Is.
var (
	// ErrConfig: config.json or generation_config.json has a value that is wrong or not
	// supported.
	ErrConfig = errors.New("config.json")
	// ErrWeights: the checkpoint does not hold the tensors that its config requires, or its
	// files changed or could not be read while in use.
	ErrWeights = errors.New("checkpoint")
	// ErrNoTokenizer: the model directory has no tokenizer files.
	ErrNoTokenizer = errors.New("the model has no tokenizer")
	// ErrChatTemplate: a chat template is broken, uses an unsupported feature, or does not
	// fit the conversation.
	ErrChatTemplate = errors.New("chat template")
	// ErrClosed: the model was closed.
	ErrClosed = errors.New("the model is closed")
	// ErrRequest: a graph or a generation that the model cannot do.
	ErrRequest = errors.New("invalid request")
)

// Config is the architecture of a model, read from its config.json.
type Config struct {
	Layers         int
	Hidden         int // features of a token
	Heads, KVHeads int // of queries, and of keys and values
	HeadDim        int
	FeedForward    int // features inside the feed-forward network
	Vocab          int // rows of embedding and head
	Context        int // most tokens of a sequence
	RopeTheta, Eps float64
	QKVBias        bool // the projections to queries, keys and values have a bias
	TiedHead       bool // the head is the embedding table
	MaskID         int32
	EOSID, PadID   int32
}

// Parameters is the number of weights of the model.
func (c Config) Parameters() int64 {
	d, f := int64(c.Hidden), int64(c.FeedForward)
	q, kv := int64(c.Heads*c.HeadDim), int64(c.KVHeads*c.HeadDim)
	block := 2*d*q + 2*d*kv + 3*d*f + 2*d
	if c.QKVBias {
		block += q + 2*kv
	}
	n := int64(c.Layers)*block + d + int64(c.Vocab)*d
	if !c.TiedHead {
		n += int64(c.Vocab) * d
	}
	return n
}

// Shape is what a graph is built for. Gorgonia fixes shapes at build time.
type Shape struct {
	Batch int
	Len   int // rows: tokens of a sequence that a step computes, padding included

	// Cached is the number of tokens of a sequence whose keys and values are kept under a
	// Config with a Cache, of which a step computes Len. 0 without a cache.
	Cached int

	Rows   int  // most rows of logits selected in one step
	Padded bool // some sequences are shorter and padded on the left
}

// Tokens is the number of tokens of a sequence.
func (s Shape) Tokens() int { return max(s.Len, s.Cached) }

// Graph is a model in a Gorgonia graph: its inputs and its output.
type Graph struct {
	Shape
	Vocab int

	IDs       *gorgonia.Node // [Batch,Len] int32
	Positions *gorgonia.Node // [Batch,Len] int32
	Mask      *gorgonia.Node // [Batch,Tokens] float32, 0 for padding; nil unless Padded
	Rows      *gorgonia.Node // [Shape.Rows] int32: b*Len+i, or -1 for none
	Logits    *gorgonia.Node // [Shape.Rows,Vocab] float32
}

// Message is one turn of a conversation.
type Message struct {
	Role    string // "system", "user" or "assistant"
	Content string
}

// Progress describes a denoising step that has just ended.
type Progress struct {
	Step, Total int           // 1-based; with a confidence threshold Total is an upper bound
	Mode        pulsecol.Mode // of attention in this step
	Pass        pulsecol.Pass // what the step computed
	Seconds     float64       // the step took

	// IDs are the sequences after the step, padding and prompt included; the
	// response starts at Prompt. They are valid and read-only during the call.
	IDs    [][]int32
	Prompt int

	Committed int // tokens written in this step, over all sequences; a predicted mask counts
}

// Result is one finished or interrupted generation.
type Result struct {
	PromptIDs    []int32
	OutputIDs    []int32         // after the prompt; masked where interrupted, or where the model predicted the mask
	Filled       []int32         // prompt and output together; masks inside the prompt may be filled
	Steps        int             // denoising steps done
	Forwards     int             // forward passes; a guided one counts once
	Passes       []pulsecol.Pass // of the forward passes
	RefreshSteps []int           // 1-based
	Stats        pulsecol.Stats
	Seconds      float64 // of the denoising steps, without building the graph
}

// Memory is the peak of a run, in bytes, without the program itself.
type Memory struct {
	Weights   int64 // of the checkpoint, as far as it is read; mapped: shared between processes
	Workspace int64 // activations of a block, scores of a refresh, and logits; of a run on a GPU a copy of these alone
	Columns   int64 // column tables of all layers
	Cache     int64 // keys and values of all layers, and the columns of a block

	// Checkpoint is what Weights would be with a checkpoint in bfloat16 where the weights
	// are random and share memory; else Weights.
	Checkpoint int64

	GPU cudaop.Need // of a run on a GPU, zero on the CPU
}

// Total is the sum of the parts in the host's memory.
func (m Memory) Total() int64 { return m.Weights + m.Workspace + m.Columns + m.Cache }
