package exec

import (
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/kernel"
)

// Half is one of the two tensors of a cache.
type Half uint8

const (
	Keys Half = iota
	Values
)

func (h Half) String() string {
	if h == Keys {
		return "keys"
	}
	return "values"
}

// CacheShape is the shape of cached keys and of cached values.
type CacheShape struct {
	Batch, KVHeads, Len, HeadDim int
}

func (s CacheShape) elements() int { return s.Batch * s.KVHeads * s.Len * s.HeadDim }

// cache is what a layer keeps of a sequence: its keys and values, and the columns of the
// block that is being filled. On a device it says what of that there is.
type cache struct {
	shape  CacheShape
	memory [2][]float32 // of the longest sequence so far
	views  [2]views     // of the memory
	held   [2]*Held
	filled [2]bool  // by a prefill
	owner  any      // of the memory that the prefill has filled, on a device
	bytes  [2]int64 // of that memory, and
	listed int64    // of the columns of a block, on a device

	scores BlockScores
	block  blockTable
}

// BlockScores are the scores of the groups of a block's active rows, which ScoreCollect
// leaves to GroupTopK.
type BlockScores struct {
	Batch, Heads, Groups int
	Scores               []float32 // [Batch, Heads, Groups, Pass.Len]
}

// blockTable are the columns of a block's active rows, in groups from the first of them.
type blockTable struct {
	table        kernel.Table
	batch, heads int // of columns that were selected; 0 in static patterns
	first        int // position of the first row
	rows, n      int
	end          int // position after the block's last token
	built        bool
}

// BlockColumns are the columns that were selected for a block's active rows.
type BlockColumns struct {
	Batch, Heads, Len int      // Len is in tokens
	First, Rows       int      // active rows: Rows from position First on
	Group             int      // queries in a group, counted from First; the last may be short
	Bits              []uint32 // [Batch, Heads, ceil(Rows/Group), ceil(Len/32)]; key j is bit j%32 of word j/32
}

// Cached returns the keys or the values that the layer keeps, after the rows x
// [Batch, KVHeads, pass.Rows, HeadDim] of the step in progress have taken their places. The
// result has the shape s. A prefill fills it. Before one the error wraps ErrStale.
func (s *State) Cached(half Half, x []float32, shape CacheShape) (*Held, error) {
	if err := s.Admit(half, shape, nil, 0); err != nil {
		return nil, err
	}
	c, pass := s.cache, s.step.Pass()
	if pass.Kind == Prefill {
		c.reserve(half, shape)
	}
	rows := pass.Rows * shape.HeadDim
	for head := range shape.Batch * shape.KVHeads {
		to := c.held[half].Float32s()[(head*shape.Len+pass.First)*shape.HeadDim:]
		copy(to[:rows], x[head*rows:])
	}
	return c.held[half], nil
}

// Admit checks that the step in progress may write its rows of the keys or the values,
// which have the shape s. A prefill fills them, in memory of an owner, so many bytes; nil is
// the CPU's. Before one, and in other memory, the error wraps ErrStale.
func (s *State) Admit(half Half, shape CacheShape, owner any, bytes int64) error {
	if s.cache == nil {
		s.cache = new(cache)
	}
	c, pass := s.cache, s.step.Pass()
	switch {
	case pass.Kind == Whole:
		return fmt.Errorf("%w: the step in progress has no rows of a block", ErrNoMachine)
	case pass.Len != shape.Len:
		return fmt.Errorf("%w: a sequence of %d tokens, the step's has %d", ErrShape, shape.Len, pass.Len)
	case pass.Kind == Prefill:
		if c.shape != shape || c.owner != owner {
			c.shape, c.owner, c.held, c.filled = shape, owner, [2]*Held{}, [2]bool{}
		}
		c.filled[half], c.bytes[half] = true, bytes
	case !c.filled[half] || c.owner != owner:
		return fmt.Errorf("%w: no prefill has filled the cache", ErrStale)
	case c.shape != shape:
		return fmt.Errorf("%w: the cache holds %s %v, the graph has %v", ErrShape, half, c.shape, shape)
	}
	return nil
}

// LoseCache says that the memory of keys and values has lost its contents.
func (s *State) LoseCache() {
	if s.cache != nil {
		s.cache.filled = [2]bool{}
	}
}

// reserve makes room for a sequence.
func (c *cache) reserve(half Half, shape CacheShape) {
	n := shape.elements()
	if len(c.memory[half]) < n {
		c.memory[half] = make([]float32, n)
		c.views[half].empty()
	} else if c.held[half] != nil && c.shape == shape {
		return
	}
	c.held[half] = view(&c.views[half], c.memory[half][:n:n], shape.Batch, shape.KVHeads, shape.Len, shape.HeadDim)
}

// MakeBlockScores returns memory for the scores of the step's active rows.
func (s *State) MakeBlockScores(batch, heads, group int) []float32 {
	pass, b := s.step.Pass(), &s.cache.scores
	b.Batch, b.Heads, b.Groups = batch, heads, kernel.Groups(pass.To-pass.From, group)
	n := batch * heads * b.Groups * pass.Len
	if cap(b.Scores) < n {
		b.Scores = s.step.takeScores(n)
	}
	b.Scores = b.Scores[:n]
	return b.Scores
}

// BlockScores returns the latest of MakeBlockScores, until SelectBlock has read them.
func (s *State) BlockScores() *BlockScores { return &s.cache.scores }

// SelectBlock builds the columns of the step's active rows from their scores, in groups of
// group queries. topK fills the rows of one head, whose index counts over all batch rows.
// The keys of the block are among the columns. On an error of stopped there are none.
func (s *State) SelectBlock(group int, topK func(rows []uint32, head int), stopped func() error) error {
	pass, heads := s.step.Pass(), s.cache.scores.Batch*s.cache.scores.Heads
	b := s.reserveBlock(heads, pass.From, pass.To-pass.From, pass.Len, kernel.Table{Group: group, Reach: -1})
	b.batch, b.heads, b.end = s.cache.scores.Batch, s.cache.scores.Heads, pass.End
	size := len(b.table.Bits) / heads
	for head := range heads {
		rows := b.table.Bits[head*size : (head+1)*size]
		topK(rows, head)
		for first := 0; first < len(rows); first += kernel.Words(pass.Len) {
			for j := pass.From; j < pass.End; j++ {
				columns.Set(rows[first:], j)
			}
		}
	}
	s.step.giveScores(s.cache.scores.Scores)
	s.cache.scores.Scores = nil
	if err := stopped(); err != nil {
		return err
	}
	b.built = true
	return nil
}

// SelectedBlock records that a device has selected the columns of the step's active rows, and
// holds so many bytes for them.
func (s *State) SelectedBlock(batch, heads, group int, bytes int64) {
	pass := s.step.Pass()
	s.cache.block = blockTable{
		table: kernel.Table{Group: group, Reach: -1}, batch: batch, heads: heads,
		first: pass.From, rows: pass.To - pass.From, n: pass.Len, end: pass.End, built: true,
	}
	s.cache.listed = bytes
}

// CopyBlockColumns returns a copy of BlockColumns, also of those on a device. Without any the
// error wraps ErrStale.
func (s *State) CopyBlockColumns() (*BlockColumns, error) {
	b := s.BlockColumns()
	if b == nil {
		return nil, fmt.Errorf("no columns of a block: %w", ErrStale)
	}
	if s.device == nil {
		b.Bits = slices.Clone(b.Bits)
		return b, nil
	}
	words := kernel.Words(b.Len)
	var err error
	if b.Bits, err = s.device.BlockBits(b.Batch * b.Heads * kernel.Groups(b.Rows, b.Group) * words); err != nil {
		return nil, err
	}
	for row := range slices.Chunk(b.Bits, words) {
		for j := b.First; j < s.cache.block.end; j++ {
			columns.Set(row, j)
		}
	}
	return b, nil
}

// reserveBlock makes room for the table t of rows from first on, for so many heads and n
// keys.
func (s *State) reserveBlock(heads, first, rows, n int, t kernel.Table) *blockTable {
	b := &s.cache.block
	words := heads * kernel.Groups(rows, t.Group) * kernel.Words(n)
	t.Bits = b.table.Bits
	if cap(t.Bits) < words {
		t.Bits = make([]uint32, words)
	}
	t.Bits = t.Bits[:words]
	*b = blockTable{table: t, first: first, rows: rows, n: n}
	return b
}

// BlockBuilt reports whether there are columns of the block that is being filled.
func (s *State) BlockBuilt() bool { return s.cache != nil && s.cache.block.built }

// BlockTable is the columns of the block that is being filled, in groups from its first
// active row; nil without any.
func (s *State) BlockTable() *kernel.Table {
	if !s.BlockBuilt() {
		return nil
	}
	return &s.cache.block.table
}

// BlockColumns are the columns of BlockTable, with the memory of the layer; nil without any
// and in static patterns.
func (s *State) BlockColumns() *BlockColumns {
	if !s.BlockBuilt() || s.cache.block.heads == 0 {
		return nil
	}
	b := &s.cache.block
	return &BlockColumns{Batch: b.batch, Heads: b.heads, Len: b.n, First: b.first, Rows: b.rows, Group: b.table.Group, Bits: b.table.Bits}
}

// StaticRows returns the table of a static selection for the rows of the step in progress.
func (a *Attention) StaticRows() *kernel.Table {
	s, sel, pass := a.State, a.Selection, a.State.step.Pass()
	if b := &s.cache.block; b.built && b.first == pass.First && b.rows == pass.Rows && b.n == pass.Len {
		return &b.table
	}
	b := s.reserveBlock(1, pass.First, pass.Rows, pass.Len, kernel.Table{
		Group: a.Group, SharedBatch: true, SharedHeads: true, Reach: sel.Reach, Sinks: sel.Sinks(pass.Len),
	})
	sel.fillStatic(b.table.Bits, pass.First, pass.Rows, pass.Len, a.Group)
	b.built = true
	return &b.table
}

// DropBlock forgets the columns of the block.
func (s *State) DropBlock() {
	if s.cache != nil {
		s.cache.block.built = false
	}
}

// CacheBytes is what the layer's keys, values and columns of a block take.
func (s *State) CacheBytes() int64 {
	if s.cache == nil {
		return 0
	}
	c := s.cache
	return 4*int64(len(c.memory[Keys])+len(c.memory[Values])+cap(c.block.table.Bits)) + c.bytes[Keys] + c.bytes[Values] + c.listed
}
