package op

import "github.com/pulsecol/pulsecol/internal/exec"

// Mode is what the attention of one denoising step does: Dense, Refresh or Reuse.
type Mode = exec.Mode

// The modes of a step.
const (
	Dense   = exec.Dense   // full attention; column tables stay as they are
	Refresh = exec.Refresh // full attention, and new column tables from its scores
	Reuse   = exec.Reuse   // sparse attention over the columns of the last refresh
)
