package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/internal/kernelbench"
	"github.com/pulsecol/pulsecol/internal/quant"
)

type benchKernelCmd struct {
	Op        []string  `placeholder:"NAME" enum:"dense,refresh,columnsparse,linear,scores,topk" help:"dense, refresh (dense attention, scores and top-k), columnsparse, linear (on the CPU), scores or topk (on a GPU). Default: all."`
	Length    []int     `placeholder:"N" help:"Tokens. Default: 4096; on a GPU 4096,16384."`
	HeadDim   []int     `placeholder:"D" help:"Head dimensions. Default: 64,128; on a GPU 128."`
	GroupSize []int     `placeholder:"N" help:"Queries that share their keys. Default: 128,32; on a GPU 128,64,32."`
	Sparsity  []float64 `placeholder:"SHARE" help:"Shares of keys dropped, in whole hundredths. Default: 0.8,0.9."`
	Heads     *int      `placeholder:"N" help:"Default: 8; on a GPU 32."`
	KVHeads   *int      `name:"kv-heads" placeholder:"N" help:"Key heads, on a GPU. Default: as many as heads."`
	Precision []string  `placeholder:"NAME" enum:"float32,bfloat16,int16,int8" help:"What the operands of products are rounded to on the CPU: float32 (not at all), bfloat16, int16, or with quantized weights int8. Default: all."`
	DType     []string  `name:"dtype" placeholder:"TYPE" help:"Types of the weights of linear, as in F32, BF16, Q8_0, Q4_K. Default: F32,BF16."`
	Rows      []int     `placeholder:"N" help:"Measure linear with so many rows, 2048 inputs and 32768 outputs. Default: three sizes of 32 to 2048 rows."`
	Threads   []int     `placeholder:"N" help:"On the CPU. Default: 1 and the number of processors."`
	Samples   *int      `placeholder:"N" help:"Runs that a median is of. Default: 15."`
	Device    string    `enum:"cpu,cuda" default:"cpu" help:"Where to measure: cpu or cuda. Default: cpu."`
	Baselines string    `placeholder:"FILE" help:"Output of bench/attention.py on the same GPU; its times are printed next to ours."`
	JSON      bool      `name:"json" help:"Print a JSON object a line."`
}

func (benchKernelCmd) Help() string {
	return `Useful operations only: for attention 4*heads*n*keys*head_dim with the keys that are kept, for scores 2*heads*n*n*head_dim. On the CPU the peak is that of multiply-add in registers, measured between the runs, with the instruction that makes the products. For linear, GB/s are the bytes of the weights over the time, and % read is the share of what threads that only read memory reach.

Examples:
  pulsecol bench kernel --op dense,columnsparse --length 4096 --head-dim 128 --json
  pulsecol bench kernel --op linear --rows 1,32 --dtype BF16,Q8_0,Q4_K --precision float32,int8
  pulsecol bench kernel --device cuda --length 4096,16384 --baselines pytorch.jsonl --json`
}

func (c *benchKernelCmd) Run(std stdio) error {
	if err := errors.Join(c.validate(), c.checkDevice()); err != nil {
		return err
	}
	if err := background.Err(); err != nil {
		return err
	}
	if c.Device == "cuda" {
		return c.cuda(std.out)
	}
	if need, have := c.memory(), availableMemory(systemFiles); have > 0 && need > have {
		return fmt.Errorf("the largest measurement needs about %s of memory, and this machine has %s available", byteSize(need), byteSize(have))
	}
	o := kernelbench.Options{
		Ops: c.Op, Threads: c.Threads, Heads: or(c.Heads, 0), Lens: c.Length, HeadDims: c.HeadDim,
		Groups: c.GroupSize, Samples: or(c.Samples, 0),
	}
	for _, s := range c.Sparsity {
		o.Sparsities = append(o.Sparsities, int(math.Round(100*s)))
	}
	for _, name := range c.DType {
		t, ok := quant.Parse(name)
		if !ok || !t.OfWeights() {
			return usagef("--dtype %s: want one of %v", name, quant.WeightTypes())
		}
		o.DTypes = append(o.DTypes, t)
	}
	for _, n := range c.Rows {
		o.Linears = append(o.Linears, [3]int{n, linearIn, linearOut})
	}
	for _, name := range c.Precision {
		o.Precisions = append(o.Precisions, precisions[name])
	}
	linear := len(o.Ops) == 0 || slices.Contains(o.Ops, "linear")
	if slices.Equal(slices.Compact(slices.Clone(c.Precision)), []string{"int8"}) && !(linear && slices.ContainsFunc(o.DTypes, quant.DType.Quantized)) {
		return usagef("--precision int8: want --op linear with quantized weights, as in --dtype Q8_0")
	}
	if c.JSON {
		e, cpu, from := json.NewEncoder(std.out), thisHost().CPU, newOrigin()
		return kernelbench.Run(o, func(r kernelbench.Row) error { return e.Encode(cpuRow{r, cpu, from}) })
	}
	return kernelbench.Run(o, kernelbench.Table(std.out))
}

// Sizes of linear with --rows: weights that the caches do not hold.
const linearIn, linearOut = 2048, 32768

// Upper limits of bench kernel's flags, beyond what a CPU or a GPU computes in a day.
const (
	maxHeads   = 1 << 10 // and features of a head
	maxThreads = 1 << 10
	maxSamples = 10000
)

func (c *benchKernelCmd) validate() error {
	var b bounds
	for flag, sizes := range map[string][]int{"length": c.Length, "group-size": c.GroupSize, "rows": c.Rows} {
		for _, n := range sizes {
			b.between(1, maxTokens, flag, &n)
		}
	}
	for _, n := range c.HeadDim {
		b.between(1, maxHeads, "head-dim", &n)
	}
	for _, n := range c.Threads {
		b.between(1, maxThreads, "threads", &n)
	}
	b.between(1, maxHeads, "heads", c.Heads)
	b.between(1, maxHeads, "kv-heads", c.KVHeads)
	b.between(1, maxSamples, "samples", c.Samples)
	for _, s := range c.Sparsity {
		b.share(false, "sparsity", &s)
		if math.Round(100*s)/100 != s {
			b.errs = append(b.errs, usagef("--sparsity %v: want whole hundredths", s))
		}
	}
	return b.err()
}

// memory estimates the bytes of the largest measurement on the CPU: queries, keys, values,
// results, and scores of groups of queries; or inputs, outputs and weights of linear.
func (c *benchKernelCmd) memory() int64 {
	largest := func(values []int, otherwise int) int64 {
		if len(values) == 0 {
			return int64(otherwise)
		}
		return int64(slices.Max(values))
	}
	heads, n, dim := int64(or(c.Heads, 8)), largest(c.Length, 4096), largest(c.HeadDim, 128)
	group := int64(32)
	if len(c.GroupSize) > 0 {
		group = int64(slices.Min(c.GroupSize))
	}
	attention := 4 * heads * n * (4*dim + (n+group-1)/group)
	return max(attention, 4*largest(c.Rows, 0)*(linearIn+linearOut)+4*linearIn*linearOut)
}

// checkDevice reports flags that apply to the other device only.
func (c *benchKernelCmd) checkDevice() error {
	var errs []error
	not := func(given bool, flag string) {
		if given {
			errs = append(errs, usagef("%s does not apply to --device %s", flag, c.Device))
		}
	}
	if c.Device == "cuda" {
		not(c.Threads != nil, "--threads")
		not(c.Precision != nil, "--precision")
		not(c.DType != nil, "--dtype")
		not(c.Rows != nil, "--rows")
		not(slices.Contains(c.Op, "linear"), "--op linear")
	} else {
		not(c.KVHeads != nil, "--kv-heads")
		not(c.Baselines != "", "--baselines")
		not(slices.Contains(c.Op, "scores"), "--op scores")
		not(slices.Contains(c.Op, "topk"), "--op topk")
	}
	return errors.Join(errs...)
}

// origin is the machine, program and date of a line of results.
type origin struct {
	Version string `json:"commit"`
	Date    string `json:"date"`
	Command string `json:"command"`
}

func newOrigin() origin {
	return origin{version(), time.Now().UTC().Format(time.DateOnly), strings.Join(append([]string{"pulsecol"}, os.Args[1:]...), " ")}
}

// cpuRow is a line of results on a CPU.
type cpuRow struct {
	kernelbench.Row
	CPU string `json:"cpu"`
	origin
}

// gpuRow is a line of results on a GPU.
type gpuRow struct {
	gpu.Measurement
	FA2MS   float64 `json:"fa2_ms,omitempty"`   // PyTorch's FlashAttention-2, dense
	CuDNNMS float64 `json:"cudnn_ms,omitempty"` // PyTorch's cuDNN attention, dense
	origin
}

func (c *benchKernelCmd) cuda(w io.Writer) error {
	if err := cudaop.Available(); err != nil {
		return fmt.Errorf("--device cuda: %w", err)
	}
	dense, err := readBaselines(c.Baselines)
	if err != nil {
		return err
	}
	report := gpuTable(w)
	if c.JSON {
		e := json.NewEncoder(w)
		report = func(r gpuRow) error { return e.Encode(r) }
	}
	from := newOrigin()
	o := gpu.MeasureOptions{
		Kernels: c.Op, Lens: c.Length, Heads: or(c.Heads, 0), KVHeads: or(c.KVHeads, 0), HeadDims: c.HeadDim,
		Groups: c.GroupSize, Sparsities: c.Sparsity, Samples: or(c.Samples, 0),
	}
	return gpu.Measure(o, func(m gpu.Measurement) error {
		r := gpuRow{Measurement: m, origin: from}
		for kernel, to := range map[string]*float64{"fa2": &r.FA2MS, "cudnn": &r.CuDNNMS} {
			*to = dense[baseline{kernel, m.N, m.Heads, m.HeadDim}]
		}
		return report(r)
	})
}

// baseline is a size that bench/attention.py has timed.
type baseline struct {
	Kernel  string
	N       int
	Heads   int
	HeadDim int `json:"head_dim"`
}

// readBaselines reads the output of bench/attention.py; "" gives no baselines.
func readBaselines(name string) (map[baseline]float64, error) {
	ms := map[baseline]float64{}
	if name == "" {
		return ms, nil
	}
	rows, err := readRows[struct {
		baseline
		MS float64
	}](name)
	if err != nil {
		return nil, fmt.Errorf("--baselines: %w", err)
	}
	for _, row := range rows {
		ms[row.baseline] = row.MS
	}
	return ms, nil
}

// gpuTable writes rows as lines of a table, the first one below a heading.
func gpuTable(w io.Writer) func(gpuRow) error {
	heading := fmt.Sprintf("%-13s %-18s %8s %5s %8s %10s %8s %9s %9s\n", "kernel", "shape", "kv heads", "group", "sparsity", "ms", "TFLOP/s", "FA2 ms", "cuDNN ms")
	number := func(x float64, digits int) string {
		if x == 0 {
			return ""
		}
		return fmt.Sprintf("%.*f", digits, x)
	}
	return func(r gpuRow) error {
		group, sparsity := "", ""
		if r.Group > 0 {
			group = fmt.Sprint(r.Group)
		}
		if r.Sparsity > 0 {
			sparsity = fmt.Sprintf("%.0f %%", 100*r.Sparsity)
		}
		_, err := fmt.Fprintf(w, "%s%-13s %-18s %8d %5s %8s %10.3f %8s %9s %9s\n", heading, r.Kernel, fmt.Sprintf("%dx%dx%d", r.Heads, r.N, r.HeadDim),
			r.KVHeads, group, sparsity, r.MS, number(r.TFLOPS, 0), number(r.FA2MS, 3), number(r.CuDNNMS, 3))
		heading = ""
		return err
	}
}
