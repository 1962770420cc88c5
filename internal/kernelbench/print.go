package kernelbench

import (
	"fmt"
	"io"
)

// Table writes rows as lines of a table to w, the first one below a heading.
func Table(w io.Writer) func(Row) error {
	heading := fmt.Sprintf("%-13s %-5s %-9s %-18s %5s %8s %7s %10s %8s %8s %6s %6s %6s %6s\n",
		"op", "dtype", "precision", "shape", "group", "sparsity", "threads", "ms", "GFLOP/s", "peak", "% peak", "by CPU", "GB/s", "% read")
	return func(r Row) error {
		shape := fmt.Sprintf("%dx%dx%d", r.Heads, r.N, r.HeadDim)
		if r.Op == "linear" {
			shape = fmt.Sprintf("%dx%dx%d", r.Rows, r.In, r.Out)
		}
		group, sparsity := "", ""
		if r.Group > 0 {
			group, sparsity = fmt.Sprint(r.Group), fmt.Sprintf("%.0f %%", 100*r.Sparsity)
		}
		read, readPercent := "", ""
		if r.ReadGBS > 0 {
			read, readPercent = fmt.Sprintf("%.2f", r.ReadGBS), fmt.Sprintf("%.1f", r.ReadPercent)
		}
		_, err := fmt.Fprintf(w, "%s%-13s %-5s %-9s %-18s %5s %8s %7d %10.3f %8.1f %8.1f %6.1f %6.1f %6s %6s\n",
			heading, r.Op, r.DType, r.Precision, shape, group, sparsity, r.Threads, r.MS, r.GFLOPS, r.PeakGFLOPS, r.Percent, r.CPUPercent, read, readPercent)
		heading = ""
		return err
	}
}
