package exec

import "fmt"

// Mode is what the attention of one denoising step does.
type Mode uint8

const (
	Dense   Mode = iota // full attention; column tables stay as they are
	Refresh             // full attention, and new column tables from its scores
	Reuse               // sparse attention over the columns of the last refresh
)

const modes = int(Reuse) + 1

func (m Mode) String() string {
	switch m {
	case Dense:
		return "dense"
	case Refresh:
		return "refresh"
	case Reuse:
		return "reuse"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}
