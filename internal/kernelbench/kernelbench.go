// Package kernelbench measures the routines of package kernel against the peak of
// the processor. A processor's clock changes within seconds and other programs share it, so
// only the ratio of two speeds that are measured at the same time characterises a routine.
package kernelbench

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/quant"
)

// Row is one measurement.
type Row struct {
	Op    string `json:"op"`    // "dense", "refresh", "columnsparse" or "linear"
	Level string `json:"level"` // instruction set, see kernel.Features
	DType string `json:"dtype"` // of the operands of the products, or the weights of linear

	Precision string `json:"precision"` // that operands of products are rounded to

	// Shape of an attention, [1, Heads, N, HeadDim]. Group is 0 for dense
	// attention; Sparsity is the share of the keys that a query does not read.
	Heads    int     `json:"heads,omitempty"`
	N        int     `json:"n,omitempty"`
	HeadDim  int     `json:"head_dim,omitempty"`
	Group    int     `json:"group,omitempty"`
	Sparsity float64 `json:"sparsity"`

	// Shape of linear: [Rows, In] times [In, Out].
	Rows int `json:"rows,omitempty"`
	In   int `json:"in,omitempty"`
	Out  int `json:"out,omitempty"`

	Threads int     `json:"threads"`
	Samples int     `json:"samples"` // runs that the medians are of
	MS      float64 `json:"ms"`      // median time of a run
	// MSRange is the time of the fastest and of the slowest of these runs.
	MSRange [2]float64 `json:"ms_range"`

	// GFLOPS counts useful operations: 4 Heads N keys HeadDim for attention,
	// 2 Rows In Out for linear. PeakGFLOPS is the median of what all threads
	// reached on registers alone just before and after each run, with the
	// instruction that makes the products, and Percent the median of the ratio.
	GFLOPS     float64 `json:"gflops"`
	PeakGFLOPS float64 `json:"peak_gflops"`
	Percent    float64 `json:"percent_of_peak"`

	// ReadGBS is the bytes of the weights of linear over the time of a run, in GB/s, and
	// ReadPercent that of what all threads reach that only read memory.
	ReadGBS     float64 `json:"read_gb_s,omitempty"`
	ReadPercent float64 `json:"percent_of_read,omitempty"`

	// CPUPercent is Percent with both speeds per second of processor time. Other programs do
	// not affect it, but it does not show waiting threads either. It is 0 where the operating
	// system does not report processor time.
	CPUPercent float64 `json:"percent_of_peak_cpu,omitempty"`
}

// Options select the measurements. A nil slice means the default in brackets.
type Options struct {
	Ops        []string           // ["dense", "refresh", "columnsparse", "linear"]
	Threads    []int              // [1 and runtime.NumCPU()]
	Heads      int                // [8]
	Lens       []int              // [4096]
	HeadDims   []int              // [64, 128]
	Groups     []int              // [128, 32]
	Sparsities []int              // per cent [80, 90]
	Linears    [][3]int           // rows, in, out [2048x256x1024, 1024^3, 32x4096x4096]
	DTypes     []kernel.DType     // of the weights of linear [F32, BF16]
	Precisions []kernel.Precision // [all]
	Samples    int                // [15]
}

func (o *Options) defaults() {
	if o.Ops == nil {
		o.Ops = []string{"dense", "refresh", "columnsparse", "linear"}
	}
	if o.Threads == nil {
		o.Threads = slices.Compact([]int{1, runtime.NumCPU()})
	}
	if o.Heads == 0 {
		o.Heads = 8
	}
	if o.Lens == nil {
		o.Lens = []int{4096}
	}
	if o.HeadDims == nil {
		o.HeadDims = []int{64, 128}
	}
	if o.Groups == nil {
		o.Groups = []int{128, 32}
	}
	if o.Sparsities == nil {
		o.Sparsities = []int{80, 90}
	}
	if o.Linears == nil {
		o.Linears = [][3]int{{2048, 256, 1024}, {1024, 1024, 1024}, {32, 4096, 4096}}
	}
	if o.DTypes == nil {
		o.DTypes = []kernel.DType{kernel.F32, kernel.BF16}
	}
	if o.Precisions == nil {
		o.Precisions = []kernel.Precision{kernel.Float32, kernel.BFloat16, kernel.Int16, kernel.Int8}
	}
	if o.Samples == 0 {
		o.Samples = 15
	}
}

func (o *Options) check() error {
	for _, op := range o.Ops {
		if !slices.Contains([]string{"dense", "refresh", "columnsparse", "linear"}, op) {
			return fmt.Errorf("kernelbench: op %q is not one of dense, refresh, columnsparse, linear", op)
		}
	}
	for name, sizes := range map[string][]int{"threads": o.Threads, "length": o.Lens, "head dim": o.HeadDims,
		"group": o.Groups, "heads": {o.Heads}, "samples": {o.Samples}} {
		for _, n := range sizes {
			if n <= 0 {
				return fmt.Errorf("kernelbench: %s is %d, must be positive", name, n)
			}
		}
	}
	for _, t := range o.DTypes {
		if !t.OfWeights() {
			return fmt.Errorf("kernelbench: weights of %v, must be of %v", t, quant.WeightTypes())
		}
	}
	for _, p := range o.Precisions {
		if err := p.Validate(); err != nil {
			return fmt.Errorf("kernelbench: %w", err)
		}
	}
	for _, s := range o.Sparsities {
		if s < 0 || s >= 100 {
			return fmt.Errorf("kernelbench: sparsity is %d %%, must be in [0, 100)", s)
		}
	}
	for _, l := range o.Linears {
		if min(l[0], l[1], l[2]) <= 0 {
			return fmt.Errorf("kernelbench: linear %dx%dx%d: sizes must be positive", l[0], l[1], l[2])
		}
	}
	return nil
}

// Run makes the measurements of the options and calls report with each row when it is
// complete. It sets GOMAXPROCS during a measurement.
func Run(o Options, report func(Row) error) error {
	o.defaults()
	if err := o.check(); err != nil {
		return err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range o.cases() {
		run := c.prepare()
		for _, threads := range o.Threads {
			runtime.GOMAXPROCS(threads)
			row := c.row
			row.Level, row.Threads = kernel.Features(), threads
			measure(&row, c, o.Samples, run)
			if err := report(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure fills in the numbers of a row. A run whose neighbouring peak is far below the best
// one shared the processor with another program. Such runs are repeated, up to three times
// the number of samples.
func measure(row *Row, c benchCase, samples int, run func()) {
	flops, peakFMA := c.flops, kernel.PeakFMA
	switch c.precision {
	case kernel.BFloat16:
		peakFMA = kernel.PeakFMABF16
	case kernel.Int16:
		peakFMA = kernel.PeakFMAInt16
	case kernel.Int8:
		peakFMA = kernel.PeakInt8
	}
	run() // grows buffers
	reading := 0.0
	if c.bytes > 0 {
		reading = readSpeed()
	}
	type sample struct{ run, peak speed }
	var all []sample
	best, calm := 0.0, 0
	before := peak(peakFMA)
	for calm < samples && len(all) < 3*samples {
		s := timed(func() float64 { run(); return flops })
		after := peak(peakFMA)
		all = append(all, sample{s, before.mean(after)})
		best = max(best, after.wall)
		before = after
		calm = 0
		for _, s := range all {
			if s.peak.wall > disturbed*best {
				calm++
			}
		}
	}
	if calm >= 3 {
		all = slices.DeleteFunc(all, func(s sample) bool { return s.peak.wall <= disturbed*best })
	}
	var rates, peaks, ratios, cpuRatios []float64
	for _, s := range all {
		rates = append(rates, s.run.wall)
		peaks = append(peaks, s.peak.wall)
		ratios = append(ratios, s.run.wall/s.peak.wall)
		cpuRatios = append(cpuRatios, s.run.cpu/s.peak.cpu)
	}
	row.Samples = len(all)
	row.GFLOPS = median(rates)
	row.MS = flops / row.GFLOPS / 1e6
	row.MSRange = [2]float64{flops / slices.Max(rates) / 1e6, flops / slices.Min(rates) / 1e6}
	row.PeakGFLOPS = median(peaks)
	row.Percent = 100 * median(ratios)
	if c.bytes > 0 {
		row.ReadGBS = c.bytes / row.MS / 1e6
		row.ReadPercent = 100 * row.ReadGBS / max(reading, readSpeed())
	}
	if cpuTime() != 0 {
		row.CPUPercent = 100 * median(cpuRatios)
	}
}

// speed is in GFLOP/s, by the clock and per second that a processor worked.
type speed struct{ wall, cpu float64 }

func (s speed) mean(t speed) speed { return speed{(s.wall + t.wall) / 2, (s.cpu + t.cpu) / 2} }

// timed is the speed of f, which returns its number of floating-point operations.
func timed(f func() (flops float64)) speed {
	start, cpu := time.Now(), cpuTime()
	flops := f()
	ns := time.Since(start).Nanoseconds()
	busy := (cpuTime() - cpu).Nanoseconds()
	return speed{flops / float64(ns), flops / max(1, float64(busy))}
}

// disturbed is the share of the best peak below which a run is assumed to have shared the
// processor.
const disturbed = 0.9

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// peak is the speed of GOMAXPROCS threads that run peakFMA, a routine of package kernel on
// registers alone. The clock starts when all of them run.
func peak(peakFMA func(n int) int) speed {
	rounds := peakRounds()
	workers := runtime.GOMAXPROCS(0)
	flops := make(chan int, workers)
	var waiting atomic.Int32
	waiting.Store(int32(workers))
	for range workers - 1 {
		go func() {
			waiting.Add(-1)
			for waiting.Load() > 0 {
				runtime.Gosched()
			}
			flops <- peakFMA(rounds)
		}()
	}
	waiting.Add(-1)
	for waiting.Load() > 0 {
		runtime.Gosched()
	}
	return timed(func() float64 {
		total := peakFMA(rounds)
		for range workers - 1 {
			total += <-flops
		}
		return float64(total)
	})
}

// peakRounds is a number of rounds that takes about two milliseconds, much longer than the
// start of a thread.
var peakRounds = sync.OnceValue(func() int {
	const trial = 1000
	kernel.PeakFMA(trial)
	start := time.Now()
	kernel.PeakFMA(trial)
	return int(trial * 2e6 / max(1, time.Since(start).Nanoseconds()))
})

// benchCase is one measurement on any number of threads. prepare makes its operands, so that
// only one case has operands in memory.
type benchCase struct {
	row       Row
	precision kernel.Precision
	flops     float64
	bytes     float64 // of weights
	prepare   func() (run func())
}

func (o *Options) cases() (cases []benchCase) {
	for _, op := range o.Ops {
		if op == "linear" {
			for _, l := range o.Linears {
				for _, t := range o.DTypes {
					for _, p := range o.Precisions {
						if p == kernel.Int8 && !t.Quantized() || l[1]%t.Block() != 0 {
							continue
						}
						cases = append(cases, linearCase(l[0], l[1], l[2], t, p))
					}
				}
			}
			continue
		}
		for _, n := range o.Lens {
			for _, dim := range o.HeadDims {
				base := Row{Op: op, DType: kernel.F32.String(), Heads: o.Heads, N: n, HeadDim: dim}
				rows := []Row{base}
				if op != "dense" {
					rows = nil
					for _, group := range o.Groups {
						for _, s := range o.Sparsities {
							base.Group, base.Sparsity = group, float64(s)/100
							rows = append(rows, base)
						}
					}
				}
				for _, row := range rows {
					for _, p := range o.Precisions {
						if p == kernel.Int8 {
							continue // is for weights alone
						}
						cases = append(cases, attentionCase(row, p))
					}
				}
			}
		}
	}
	return cases
}

// attentionCase draws normally distributed operands. The columns of columnsparse come from
// random scores and have no structure.
func attentionCase(row Row, p kernel.Precision) benchCase {
	row.Precision = p.String()
	keep := row.N - int(row.Sparsity*float64(row.N))
	keys := row.N // of a refresh, which reads all keys and keeps some for later
	if row.Op == "columnsparse" {
		keys = keep
	}
	prepare := func() func() {
		team := new(kernel.Team) // of GOMAXPROCS workers
		r := rand.New(rand.NewPCG(1, 2))
		size := row.Heads * row.N * row.HeadDim
		a := &kernel.Operands{
			Shape: kernel.Shape{Batch: 1, Heads: row.Heads, KVHeads: row.Heads, Len: row.N, HeadDim: row.HeadDim},
			Q:     normal(r, size), K: normal(r, size), V: normal(r, size),
			Scale: 0.1, Precision: p,
		}
		out := make([]float32, size)
		if row.Op == "dense" {
			return func() { team.Dense(out, nil, a) }
		}
		groups := row.Heads * kernel.Groups(row.N, row.Group)
		table := &kernel.Table{Bits: make([]uint32, groups*kernel.Words(row.N)), Group: row.Group, Reach: -1}
		scores := normal(r, groups*row.N)
		topK := func() {
			team.TopKRows(table.Bits, scores, groups, row.N, keep, nil)
		}
		if row.Op == "refresh" {
			return func() {
				team.DenseScores(out, scores, a, row.Group)
				topK()
			}
		}
		topK()
		return func() { team.ColumnSparse(out, nil, a, table) }
	}
	return benchCase{row, p, 4 * float64(row.Heads) * float64(row.N) * float64(keys) * float64(row.HeadDim), 0, prepare}
}

func normal(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}
