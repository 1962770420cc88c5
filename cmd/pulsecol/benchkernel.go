package main

import (
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/kernelbench"
)

type benchKernelCmd struct {
	Op        []string  `placeholder:"NAME" enum:"dense,refresh,columnsparse,linear" help:"dense, refresh (dense attention, scores and top-k), columnsparse or linear. Default: all."`
	Length    []int     `placeholder:"N" help:"Tokens. Default: 4096."`
	HeadDim   []int     `placeholder:"D" help:"Head dimensions. Default: 64,128."`
	GroupSize []int     `placeholder:"N" help:"Queries that share their keys. Default: 128,32."`
	Sparsity  []float64 `placeholder:"SHARE" help:"Shares of keys dropped, in whole hundredths. Default: 0.8,0.9."`
	Heads     *int      `placeholder:"N" help:"Default: 8."`
	Precision []string  `placeholder:"NAME" enum:"float32,bfloat16,int16" help:"What the operands of products are rounded to: float32 (not at all), bfloat16 or int16. Default: all."`
	Threads   []int     `placeholder:"N" help:"Default: 1 and the number of processors."`
	Samples   *int      `placeholder:"N" help:"Runs that a median is of. Default: 15."`
	Device    string    `enum:"cpu,cuda" default:"cpu" help:"Where to measure: cpu or cuda. Default: cpu."`
	JSON      bool      `name:"json" help:"Print a JSON object a line."`
}

func (benchKernelCmd) Help() string {
	return `Useful operations only: for attention 4*heads*n*keys*head_dim with the keys that are kept. The peak is that of multiply-add in registers, measured between the runs, with the instruction that makes the products.

Example:
  pulsecol bench kernel --op dense,columnsparse --length 4096 --head-dim 128 --json`
}

func (c *benchKernelCmd) Run(std stdio) error {
	if c.Device == "cuda" {
		if err := cudaop.Available(); err != nil {
			return fmt.Errorf("--device cuda: %w", err)
		}
	}
	var b bounds
	for flag, sizes := range map[string][]int{"length": c.Length, "head-dim": c.HeadDim, "group-size": c.GroupSize, "threads": c.Threads} {
		for _, n := range sizes {
			b.atLeast(1, flag, &n)
		}
	}
	b.atLeast(1, "heads", c.Heads)
	b.atLeast(1, "samples", c.Samples)
	o := kernelbench.Options{
		Ops: c.Op, Threads: c.Threads, Heads: or(c.Heads, 0), Lens: c.Length, HeadDims: c.HeadDim,
		Groups: c.GroupSize, Samples: or(c.Samples, 0),
	}
	for _, name := range c.Precision {
		o.Precisions = append(o.Precisions, precisions[name])
	}
	for _, s := range c.Sparsity {
		b.share(false, "sparsity", &s)
		o.Sparsities = append(o.Sparsities, int(math.Round(100*s)))
	}
	if err := b.err(); err != nil {
		return err
	}
	if c.JSON {
		return kernelbench.Run(o, kernelbench.JSON(std.out))
	}
	return kernelbench.Run(o, kernelbench.Table(std.out))
}
