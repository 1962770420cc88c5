package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/tokenizer"
)

type infoCmd struct {
	File    *string      `arg:"" optional:"" placeholder:"FILE" help:"A GGUF file, or another model as for --model."`
	Open    modelFlag    `embed:""`
	Length  *int         `placeholder:"N" help:"Tokens of the run to predict, prompt and generated ones together. Default: 1024, or what the model can take."`
	Batch   int          `placeholder:"N" default:"1" help:"Sequences that the run has at once. Default: 1."`
	Method  methodFlags  `embed:""`
	Sampler samplerFlags `embed:""`
	JSON    bool         `name:"json" help:"Print one JSON object."`
}

func (infoCmd) Help() string {
	return `The flags of "pulsecol generate" say which run the memory is predicted for. The prediction is the peak of all memory of the process, mapped weights included; and for a run on a GPU what it takes there. With --random-weights it is that of a run with a checkpoint of the same shape, in bfloat16, and then that of a run with random weights.

Examples:
  pulsecol info
  pulsecol info llada-8b-Q4_K_M.gguf
  pulsecol info --model DIR --length 4096 --gen-length 128 --block-length 32 --sparsity 0.8
  pulsecol info llada-8b-Q4_K_M.gguf
  pulsecol info --model DIR --length 4096 --gen-length 128 --block-length 32 --cache dual`
}

// information is what info prints.
type information struct {
	Model       string           `json:"model"`
	ModelType   string           `json:"model_type"`
	Config      architecture     `json:"config"`
	Parameters  int64            `json:"parameters"`
	DTypes      []string         `json:"dtypes"`
	WeightBytes int64            `json:"weight_bytes"`
	Types       []typeSize       `json:"types"`     // of the weights
	Tokenizer   *tokenizerInfo   `json:"tokenizer"` // null if there is none
	Host        host             `json:"host"`
	Memory      memoryPrediction `json:"memory"`
}

// typeSize is what the tensors of one type take.
type typeSize struct {
	DType    string `json:"dtype"`
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
	Bytes    int64  `json:"bytes"`
}

type tokenizerInfo struct {
	Size int `json:"size"` // the largest id plus one
}

func (c *infoCmd) Run(line *kong.Context, std stdio) error {
	if c.File != nil {
		if c.Open.Model != nil || c.Open.Small != nil || c.Open.Shape != nil {
			return usagef("%s: want no --model, --small or --shape with it", *c.File)
		}
		c.Open.Model = c.File
	}
	m, err := c.Open.open()
	if err != nil {
		return err
	}
	defer m.Close()
	var b bounds
	b.between(1, maxBatch, "batch", &c.Batch)
	b.between(1, m.config().Context, "length", c.Length)
	if err := b.err(); err != nil {
		return err
	}
	s, err := c.Sampler.configure(m, line)
	if err != nil {
		return err
	}
	n, err := c.length(m, s)
	if err != nil {
		return err
	}
	att, err := c.Method.resolve(m, n, c.Sampler.Seed, line)
	if err != nil {
		return err
	}
	if att, err = c.Method.cacheByDefault(att, m, s); err != nil {
		return err
	}
	if s.newTokens() > 0 || att.Cache != pulsecol.NoCache { // else the masks of a prompt decide
		if _, err := s.steps(randomTokens(n-s.newTokens(), m.config(), 0), att.Config); err != nil {
			return err
		}
	}
	i := information{Model: m.name, ModelType: m.kind(), Config: m.config(), Parameters: m.parameters(), Host: thisHost()}
	if i.Memory, err = predictMemory(s, att, c.Batch, n, !mapped || c.Open.RandomWeights); err != nil {
		return err
	}
	if c.Open.RandomWeights {
		i.Types = []typeSize{{DType: "BF16", Elements: m.parameters(), Bytes: 2 * m.parameters()}}
	} else if i.Types, err = storage(&c.Open); err != nil {
		return err
	}
	for _, t := range i.Types {
		i.DTypes, i.WeightBytes = append(i.DTypes, t.DType), i.WeightBytes+t.Bytes
	}
	if i.Tokenizer, err = describeTokenizer(&c.Open); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.out, i)
	}
	return i.print(std.out)
}

// length returns the tokens of the run to predict.
func (c *infoCmd) length(m *openModel, s sampler) (int, error) {
	n := or(c.Length, max(min(1024, m.config().Context), s.newTokens()))
	if n < max(1, s.newTokens()) {
		return 0, usagef("--length %d: want at least 1, and not less than the %d new tokens", n, s.newTokens())
	}
	return n, checkLength(m, n-s.newTokens(), s.newTokens())
}

// storage returns what the tensors of a checkpoint take, by element type.
func storage(f *modelFlag) ([]typeSize, error) {
	src, err := f.weights()
	if err != nil {
		return nil, err
	}
	defer src.Close()
	types := map[string]*typeSize{}
	for _, name := range src.Names() {
		t, err := src.Tensor(name)
		if err != nil {
			return nil, err
		}
		s := types[t.DType.String()]
		if s == nil {
			s = &typeSize{DType: t.DType.String()}
			types[s.DType] = s
		}
		elements := int64(1)
		for _, n := range t.Shape {
			elements *= int64(n)
		}
		s.Tensors, s.Elements, s.Bytes = s.Tensors+1, s.Elements+elements, s.Bytes+int64(len(t.Data))
	}
	var list []typeSize
	for _, name := range slices.Sorted(maps.Keys(types)) {
		list = append(list, *types[name])
	}
	return list, nil
}

func describeTokenizer(f *modelFlag) (*tokenizerInfo, error) {
	t, err := f.tokenizer()
	if errors.Is(err, tokenizer.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &tokenizerInfo{t.Size()}, nil
}

func (i *information) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	c := i.Config
	row("model", "%s (%s)", i.Model, i.ModelType)
	row("layers", "%d of %d features, feed-forward %d", c.Layers, c.Hidden, c.FeedForward)
	row("attention", "%d heads of %d, %d key-value heads", c.Heads, c.HeadDim, c.KVHeads)
	row("vocabulary", "%d tokens, mask %d, end of text %d", c.Vocab, c.MaskID, c.EOSID)
	row("context", "%d tokens", c.Context)
	row("parameters", "%d", i.Parameters)
	row("weights", "%s, %s", byteSize(i.WeightBytes), strings.Join(i.DTypes, ", "))
	if len(i.Types) > 1 {
		for _, s := range i.Types {
			row("", "%s in %d tensors of %s, %.3g bits an element", byteSize(s.Bytes), s.Tensors, s.DType, 8*float64(s.Bytes)/float64(s.Elements))
		}
	}
	if i.Tokenizer == nil {
		row("tokenizer", "none")
	} else {
		row("tokenizer", "%d tokens", i.Tokenizer.Size)
	}
	row("CPU", "%s, %d threads, %s", i.Host.CPU, i.Host.Threads, i.Host.Features)
	row("CUDA", "%s", i.Host.CUDA)
	p := i.Memory
	tokens := fmt.Sprintf("%d tokens", p.Length)
	if p.Batch > 1 {
		tokens = fmt.Sprintf("%d times %s", p.Batch, tokens)
	}
	row("memory", "about %s for %s, %d of them generated, with %s:", byteSize(p.Peak), tokens, p.NewTokens, p.Method)
	row("", "%s weights, %s activations, %s column tables, %s program", byteSize(p.Weights), byteSize(p.Workspace), byteSize(p.Columns), byteSize(p.Program))
	if p.Cache > 0 {
		row("", "%s caches of keys and values", byteSize(p.Cache))
	}
	if p.RandomPeak > 0 {
		row("", "with random weights, which share memory: about %s, %s of them weights", byteSize(p.RandomPeak), byteSize(p.RandomWeights))
	}
	if g := p.GPU; g != nil {
		row("GPU memory", "%s:", byteSize(g.Total))
		row("", "%s weights, %s activations, %s scores, %s column tables, %s inputs and results",
			byteSize(g.Weights), byteSize(g.Activations), byteSize(g.Scores), byteSize(g.Columns), byteSize(g.Machine))
	}
	return t.Flush()
}
