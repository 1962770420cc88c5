package exec

import "fmt"

// Pass is the range of rows of a sequence that a step computes when layers keep keys and
// values from step to step. The zero value is a step without such a cache.
type Pass struct {
	Kind  PassKind
	First int // position of the first row that the step's graph computes
	Rows  int // of the graph
	Len   int // tokens of the sequence

	// The rows [From, To) are active: those that every step of the block computes. End is
	// where the block ends, at most To; the steps of a block read the keys [From, End)
	// whatever columns say.
	From, To, End int

	// Select says that active rows attend to all keys, and the columns of the block are selected.
	Select bool
}

// PassKind is the use that a step makes of cached keys and values.
type PassKind uint8

const (
	Whole     PassKind = iota // no cache: the graph has all rows
	Prefill                   // all rows, whose keys and values fill the cache
	Commit                    // the rows of the previous block too, whose tokens are final
	BlockStep                 // the active rows
)

func (k PassKind) String() string {
	switch k {
	case Whole:
		return "whole"
	case Prefill:
		return "prefill"
	case Commit:
		return "commit"
	case BlockStep:
		return "block"
	}
	return fmt.Sprintf("PassKind(%d)", uint8(k))
}

// Last is the position after the last row of the graph.
func (p Pass) Last() int { return p.First + p.Rows }
