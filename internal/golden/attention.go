package golden

import (
	"fmt"
	"math"
	"testing"

	"github.com/pulsecol/pulsecol/internal/kernel"
)

// Attention is a case of the set kernel/attention.
type Attention struct {
	Case      int
	Batch     int
	Heads     int
	KVHeads   int `json:"kv_heads"`
	Len       int `json:"seq_len"`
	HeadDim   int `json:"head_dim"`
	GroupSize int `json:"group_size"`
	Sparsity  float64
	Keep      int     // keys of each group
	Gap       float64 `json:"min_topk_gap"` // between the scores of a kept and a dropped key, at least

	set *Set
}

// Attentions runs f for every case of the set kernel/attention.
func Attentions(t *testing.T, f func(t *testing.T, c *Attention)) {
	var cases []*Attention
	set := Open(t, "kernel/attention")
	set.JSON(&cases)
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range cases {
		c.set = set
		t.Run(fmt.Sprint("case", c.Case), func(t *testing.T) { f(t, c) })
	}
}

// Float32s returns a tensor of the case.
func (c *Attention) Float32s(name string) []float32 {
	x, _ := c.set.Float32s(fmt.Sprintf("case%d.%s", c.Case, name))
	return x
}

// Index returns the kept keys, Keep for each group.
func (c *Attention) Index() []int32 {
	x, _ := c.set.Int32s(fmt.Sprintf("case%d.index", c.Case))
	return x
}

// Operands returns the inputs of the case.
func (c *Attention) Operands() *kernel.Operands {
	return &kernel.Operands{
		Shape: kernel.Shape{Batch: c.Batch, Heads: c.Heads, KVHeads: c.KVHeads, Len: c.Len, HeadDim: c.HeadDim},
		Q:     c.Float32s("q"), K: c.Float32s("k"), V: c.Float32s("v"), Scale: float32(1 / math.Sqrt(float64(c.HeadDim))),
	}
}
