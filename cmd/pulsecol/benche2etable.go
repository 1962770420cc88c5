package main

import (
	"fmt"
	"io"
)

// e2eTable writes rows as lines of a table, the first one below a heading. shared is
// the share of synthetic tables; nil without them.
func e2eTable(w io.Writer, shared *float64) func(e2eRow) error {
	heading := fmt.Sprintf("%-12s %8s %5s %8s %-18s %6s %12s %12s %10s\n", "shape", "tokens", "group", "sparsity", "mode", "steps", "ms", "whole ms", "GPU")
	if shared != nil {
		heading = fmt.Sprintf("reuse steps on synthetic column tables: %.3g %% of a group's keys are the same in all groups of 128 queries\n", 100**shared) + heading
	}
	optional := func(v float64, format string) string {
		if v == 0 {
			return ""
		}
		return fmt.Sprintf(format, v)
	}
	return func(r e2eRow) error {
		mode := r.Mode
		switch {
		case r.Kind != "":
			mode = r.Kind + " " + r.Mode
		case r.Every != nil && *r.Every > 0:
			mode = fmt.Sprintf("%s, every %d", r.Mode, *r.Every)
		}
		held := ""
		if r.HeldBytes > 0 {
			held = byteSize(r.HeldBytes)
		}
		_, err := fmt.Fprintf(w, "%s%-12s %8d %5s %8s %-18s %6s %12.2f %12s %10s\n", heading, r.Shape, r.N, optional(float64(r.Group), "%.0f"),
			optional(100*r.Sparsity, "%.0f %%"), mode, optional(float64(r.Steps), "%.0f"), r.MS,
			optional(r.WholeMS, "%.2f"), held)
		heading = ""
		return err
	}
}
