// Package quiet keeps a line of Gorgonia's cuda build, which it logs at its start,
// from the command's standard error. Packages are initialised in the order of
// their paths as far as their imports allow, so this one comes first.
package quiet

import (
	"io"
	"log"
)

var output = log.Writer()

func init() { log.SetOutput(io.Discard) }

// End lets the log be heard.
func End() { log.SetOutput(output) }
