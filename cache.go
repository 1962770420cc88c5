package pulsecol

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
)

// Cache says which keys and values attention keeps from step to step. Without one a step
// computes all tokens of the sequence. With one a generation fills its blocks from left to
// right (Controller.SetBlock), and most steps compute the rows of one block: its keys and
// values are new, all others are those of earlier steps (Fast-dLLM, arXiv 2505.22618).
//
// A step is of one of three kinds (Controller.Pass). A prefill computes all rows. The first
// step of a block that is no prefill is a commit: it starts with the rows of the previous
// block, whose tokens are final. All others are block steps.
//
// Columns are selected twice. A prefill refreshes the tables of all rows where the schedule
// has asked for it since the last one. And the first step of a block, prefill or not,
// attends from the block's rows to all keys and keeps, for each group of them, the columns
// that the steps of this block read, together with the keys of the block. Patterns that are
// fixed by position are the same as without a cache. SparseD, Fixed and the schedule
// Adaptive are errors with one.
type Cache uint8

const (
	NoCache     Cache = iota
	PrefixCache       // of what is before the block: a block step computes all rows from there on
	DualCache         // of what is before and after the block: a block step computes its rows
)

func (c Cache) String() string {
	switch c {
	case NoCache:
		return "none"
	case PrefixCache:
		return "prefix"
	case DualCache:
		return "dual"
	}
	return fmt.Sprintf("Cache(%d)", uint8(c))
}

// PassKind is which rows a step computes.
type PassKind = exec.PassKind

// The kinds of steps.
const (
	Whole     = exec.Whole     // all rows, without a cache
	Prefill   = exec.Prefill   // all rows, whose keys and values fill the cache
	Commit    = exec.Commit    // the rows of the previous block and the active ones
	BlockStep = exec.BlockStep // the active rows
)

// Pass is what a step computes.
type Pass struct {
	Kind PassKind
	Mode Mode // Dense in a commit, unless the pattern is fixed by position

	// The step's graph has Rows rows of the sequence, from First on; both are 0 without a
	// cache.
	First, Rows int
}

// Block is the part of a sequence of Len tokens that steps fill: the rows [First, End) are
// active in it. First is the first row whose output a step reads, which is one before the
// block's first token in a model whose row i predicts token i+1.
type Block struct {
	Len        int // tokens of the sequence, padding included
	First, End int
}

// ErrNoBlock: a step with a cache before Controller.SetBlock.
var ErrNoBlock = errors.New("pulsecol: no block is active; call Controller.SetBlock")

// SetBlock makes b the active block from the next step on. The next step is the first of
// the block unless b is active already. All blocks of a generation have one Len.
func (c *Controller) SetBlock(b Block) error {
	switch {
	case c.closed:
		return ErrClosed
	case c.running.Load():
		return ErrBusy
	case c.cfg.Cache == NoCache:
		return fmt.Errorf("%w: SetBlock with Cache %v, want prefix or dual", ErrConfig, c.cfg.Cache)
	case c.total == 0:
		return ErrNotStarted
	case b.First < 0 || b.First >= b.End || b.End > b.Len:
		return fmt.Errorf("pulsecol: SetBlock: rows [%d, %d) of %d tokens, want at least one within [0, %d)", b.First, b.End, b.Len, b.Len)
	case c.blocks > 0 && b.Len != c.block.Len:
		return fmt.Errorf("pulsecol: SetBlock: a sequence of %d tokens, want %d as the block before", b.Len, c.block.Len)
	case c.blocks > 0 && b == c.block:
		return nil
	}
	if c.opened {
		c.previous = c.block.First
	}
	c.block, c.opened = b, false
	c.blocks++
	for _, l := range c.layers {
		l.state.DropBlock()
	}
	return nil
}

// Pass returns what the next step will compute. It is zero when no step is left, when no
// block is active, and where Mode has no answer.
func (c *Controller) Pass() Pass {
	if !c.left() {
		return Pass{}
	}
	mode, pass, err := c.next()
	if err != nil {
		return Pass{}
	}
	return Pass{Kind: pass.Kind, Mode: mode, First: pass.First, Rows: pass.Rows}
}

// nextCached is next with a cache.
func (c *Controller) nextCached() (Mode, exec.Pass, error) {
	if c.blocks == 0 {
		return Dense, exec.Pass{}, ErrNoBlock
	}
	b := c.block
	p := exec.Pass{Kind: exec.BlockStep, First: b.First, Len: b.Len, From: b.First, To: b.End, End: b.End}
	if c.cfg.Cache == PrefixCache {
		p.To = b.Len
	}
	last, every := p.To, c.cfg.PrefillEvery
	switch {
	case !c.filled || !c.opened && every > 0 && (c.blocks-1)%every == 0:
		p.Kind, p.First, last = exec.Prefill, 0, b.Len
	case !c.opened:
		p.Kind, p.First = exec.Commit, min(c.previous, b.First)
	}
	p.Rows = last - p.First

	m, err := c.configured(c.done + 1)
	switch {
	case err != nil || m == Dense || c.sel.Unchanging():
		return m, p, err
	case p.Kind == exec.Prefill:
		p.Select = true
		if m == Refresh || c.mustRefresh || !c.built() {
			return Refresh, p, nil
		}
		return Reuse, p, nil
	case p.Kind == exec.Commit || !c.blockSelected():
		p.Select = true
		return Dense, p, nil
	}
	return Reuse, p, nil
}

// CacheBytes returns, before anything runs, the bytes that the caches of a generation under
// c will take in g: keys, values, and with columns those of so many active rows and their
// scores.
func (c *Controller) CacheBytes(g *gorgonia.ExprGraph, active int) (bytes int64) {
	selects := slices.Contains(c.Modes(), Reuse) && !c.sel.Unchanging()
	if g == nil {
		return 0
	}
	var scores int64 // of one layer at a time
	for _, n := range g.AllNodes() {
		switch spec := exec.SpecOf(n.Op()).(type) {
		case exec.KVCache:
			bytes += 4 * int64(n.Shape().TotalSize())
		case exec.GroupTopK:
			if s := n.Shape(); selects {
				groups := int64(s[0]) * int64(s[1]) * int64(kernel.Groups(active, c.group))
				bytes += 4 * groups * int64(kernel.Words(spec.Len))
				scores = max(scores, 4*groups*int64(spec.Len))
			}
		}
	}
	return bytes + scores
}

// blockSelected reports whether every layer in use has columns of the block.
func (c *Controller) blockSelected() bool {
	return c.inUse(func(l *Layer) bool { return l.state.BlockBuilt() })
}

// endCached ends a step with cached keys and values; see end.
func (c *Controller) endCached(failed bool) {
	pass := c.step.Pass()
	if failed {
		if pass.Kind == exec.Prefill {
			c.filled = false
		}
		if pass.Select {
			for _, l := range c.layers {
				l.state.DropBlock()
			}
		}
		return
	}
	c.opened = true
	c.filled = c.filled || pass.Kind == exec.Prefill
	c.passes[pass.Kind]++
}
