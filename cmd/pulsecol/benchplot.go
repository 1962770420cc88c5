package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulsecol/pulsecol/internal/chart"
	"github.com/pulsecol/pulsecol/internal/infile"
	"github.com/pulsecol/pulsecol/internal/outfile"
)

type benchPlotCmd struct {
	Kernels *string `placeholder:"FILE" help:"What bench kernel --device cuda --json printed: kernels.png, the time of attention over the length."`
	E2E     *string `name:"e2e" placeholder:"FILE" help:"What bench e2e --json and bench/e2e.py printed on one GPU: generation-SHAPE.png, how much faster a generation of each shape that both have is than PyTorch's, over the length."`
	Steps   int     `placeholder:"T" default:"1024" help:"Steps of these generations. Default: 1024."`
	Out     string  `placeholder:"DIR" default:"." help:"Where the pictures go."`
}

func (benchPlotCmd) Help() string {
	return `Of several rows for one point the last counts.

Example:
  pulsecol bench plot --kernels bench/gpu.jsonl --e2e bench/e2e.jsonl --out docs/img`
}

func (c *benchPlotCmd) Run(std stdio) error {
	if c.Kernels == nil && c.E2E == nil {
		return usagef("nothing to draw: want --kernels or --e2e")
	}
	var b bounds
	if b.between(1, maxSteps, "steps", &c.Steps); b.err() != nil {
		return b.err()
	}
	if c.Out == "" {
		return usagef("--out is empty")
	}
	if err := outfile.CheckDir(c.Out); err != nil {
		return fmt.Errorf("--out %s: %w", c.Out, err)
	}
	type picture struct {
		*chart.Chart
		of string // the flag and its file
	}
	pictures := map[string]picture{}
	if c.Kernels != nil {
		rows, err := readRows[kernelRow](*c.Kernels)
		if err != nil {
			return fmt.Errorf("--kernels: %w", err)
		}
		kernels := kernelChart(rows)
		if len(kernels.Lines) == 0 {
			return fmt.Errorf("--kernels: %s has no times of attention with heads of 128", *c.Kernels)
		}
		pictures["kernels.png"] = picture{kernels, "--kernels " + *c.Kernels}
	}
	if c.E2E != nil {
		rows, err := readRows[timedRow](*c.E2E)
		if err != nil {
			return fmt.Errorf("--e2e: %w", err)
		}
		rows = slices.DeleteFunc(rows, func(r timedRow) bool { return r.Shared != nil || r.Cache != "" }) // of synthetic tables, and with caches
		names := shapes(rows, c.Steps)
		if len(names) == 0 {
			return fmt.Errorf("--e2e: %s has no generation of %d steps", *c.E2E, c.Steps)
		}
		ours := strings.Join(names, ", ")
		names = slices.DeleteFunc(names, func(shape string) bool {
			return !slices.ContainsFunc(rows, func(r timedRow) bool { return r.Shape == shape && r.Attention != "" })
		})
		if len(names) == 0 {
			return fmt.Errorf("--e2e: %s has no rows of bench/e2e.py to compare those of %s with", *c.E2E, ours)
		}
		for _, shape := range names {
			if strings.ContainsAny(shape, `/\\`) { // it becomes part of a file's name
				return fmt.Errorf("--e2e: %s has the shape %q, want a name without / and \\", *c.E2E, shape)
			}
			pictures[fmt.Sprintf("generation-%s.png", shape)] = picture{generationChart(rows, shape, c.Steps), "--e2e " + *c.E2E}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pictures)) {
		file := filepath.Join(c.Out, name)
		if err := pictures[name].WriteFile(file); err != nil {
			return fmt.Errorf("%s: %w", pictures[name].of, err)
		}
		fmt.Fprintln(std.out, file)
	}
	return nil
}

// maxRows is far above the files of bench, which have less than 100 KiB.
var maxRows = infile.Limit{Bytes: 16 << 20, What: "a file of measurements"}

// readRows reads a JSON object a line.
func readRows[T any](name string) ([]T, error) {
	data, err := infile.Read(name, maxRows)
	if err != nil {
		return nil, err
	}
	var rows []T
	for line := range bytes.Lines(data) {
		var row T
		if err := json.Unmarshal(line, &row); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, len(rows)+1, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// kernelRow is a measurement of a kernel, by bench kernel or by the kernels' own
// program, which names them in full. A row without a kernel names the GPU of the file.
type kernelRow struct {
	Kernel   string
	N, Heads int
	HeadDim  int `json:"head_dim"`
	Group    int
	Sparsity float64
	Share    float64 // of a group's keys that its neighbours have too
	MS       float64
	FA2MS    float64 `json:"fa2_ms"`
	CuDNNMS  float64 `json:"cudnn_ms"`
	GPU      string
}

// is reports whether the row is of an operation's kernel for Hopper.
func (r *kernelRow) is(operation, file string) bool {
	return r.HeadDim == 128 && r.Share == 0 && (r.Kernel == operation || strings.HasPrefix(r.Kernel, file+"_sm90_"))
}

// curves collects the points of lines.
type curves map[string]map[float64]float64

func (c curves) set(line string, x int, y float64) {
	if c[line] == nil {
		c[line] = map[float64]float64{}
	}
	c[line][float64(x)] = y
}

// add adds a line to a chart if there are points of it.
func (c curves) add(to *chart.Chart, line string, style chart.Style) {
	l := chart.Line{Label: line, Style: style}
	for _, x := range slices.Sorted(maps.Keys(c[line])) {
		l.Points = append(l.Points, chart.Point{X: x, Y: c[line][x]})
	}
	if l.Points != nil {
		to.Lines = append(to.Lines, l)
	}
}

// plottedHeads is the number of heads that kernelChart scales times to: those of LLaDA-8B.
const plottedHeads = 32

// kernelChart draws the time of attention: of columns, with random keys in each group, and
// of all keys. Attention is computed head by head, so times of fewer heads are scaled.
func kernelChart(rows []kernelRow) *chart.Chart {
	c := curves{}
	columns := func(group int, sparsity float64) string {
		return fmt.Sprintf("columns, group %d, %.0f %%", group, 100*sparsity)
	}
	groups, sparsities := map[int]bool{}, map[float64]bool{}
	gpus := map[string]bool{}
	for _, r := range rows {
		gpus[gpuName(r.GPU)] = true
		set := func(line string, ms float64) {
			if ms > 0 {
				c.set(line, r.N, ms*plottedHeads/float64(r.Heads))
			}
		}
		set("cuDNN", r.CuDNNMS)
		set("FlashAttention-2", r.FA2MS)
		switch {
		case r.is("dense", "denseattn"):
			set("full attention", r.MS)
		case r.is("columnsparse", "columnsparse"):
			set(columns(r.Group, r.Sparsity), r.MS)
			groups[r.Group], sparsities[r.Sparsity] = true, true
		}
	}
	out := &chart.Chart{
		Title: join("attention of one layer", gpus, "bfloat16, 32 heads of 128"), X: "tokens", Y: "milliseconds", LogX: true, LogY: true, TickX: kilo,
	}
	c.add(out, "FlashAttention-2", chart.Reference)
	c.add(out, "cuDNN", chart.StyleAs(4, 2))
	c.add(out, "full attention", chart.StyleAs(3, 0))
	for j, sparsity := range slices.Sorted(maps.Keys(sparsities)) { // dashed lines after solid ones: both show where they coincide
		for i, group := range slices.Sorted(maps.Keys(groups)) {
			c.add(out, columns(group, sparsity), chart.StyleAs(i, j))
		}
	}
	return out
}

// gpuName is the name of a GPU without its driver and host.
func gpuName(gpu string) string {
	name, _, _ := strings.Cut(gpu, ",")
	return name
}

// join joins the parts of a title, those of a set in their order, and leaves empty ones out.
func join(first string, set map[string]bool, last ...string) string {
	parts := append([]string{first}, slices.Sorted(maps.Keys(set))...)
	return strings.Join(slices.DeleteFunc(append(parts, last...), func(part string) bool { return part == "" }), ", ")
}

// timedRow is a row of bench e2e, or one of bench/e2e.py, which names its kernel of
// attention.
type timedRow struct {
	e2eRow
	Attention string
	GPU       string
}

// shapes are the models of which rows have generations of so many steps.
func shapes(rows []timedRow, steps int) []string {
	var names []string
	for _, r := range rows {
		if r.Steps == steps {
			names = append(names, r.Shape)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// generationChart draws PyTorch's time for the steps of a generation relative to ours,
// with the same number of rows of logits. It leaves out synthetic column tables.
func generationChart(rows []timedRow, shape string, steps int) *chart.Chart {
	type step struct {
		attention string
		n, rows   int
	}
	theirs := map[step]float64{} // milliseconds
	gpus := map[string]bool{}
	for _, r := range rows {
		if r.Shape == shape && r.Attention != "" {
			theirs[step{r.Attention, r.N, r.Rows}] = r.MS
			gpus[gpuName(r.GPU)] = true
		}
	}
	baselines := []struct{ attention, name string }{{"fa2", "FlashAttention-2"}, {"cudnn", "cuDNN"}}
	c := curves{}
	label := func(group int, name string) string {
		if group == 0 {
			return "full attention vs " + name
		}
		return fmt.Sprintf("group %d vs %s", group, name)
	}
	groups, sparsities := map[int]bool{}, map[string]bool{}
	var lengths []int // that have points
	for _, r := range rows {
		if r.Shape != shape || r.Steps != steps || r.WholeMS > 0 || r.Shared != nil {
			continue
		}
		groups[r.Group] = true
		if r.Group > 0 {
			sparsities[fmt.Sprintf("%.3g %% sparsity", 100*r.Sparsity)] = true
		}
		for _, b := range baselines {
			if ms, ok := theirs[step{b.attention, r.N, r.Rows}]; ok {
				c.set(label(r.Group, b.name), r.N, float64(steps)*ms/r.MS)
				lengths = append(lengths, r.N)
			}
		}
	}
	out := &chart.Chart{
		Title: join(fmt.Sprintf("%s, %d steps", shape, steps), gpus, slices.Sorted(maps.Keys(sparsities))...),
		X:     "tokens", Y: "times as fast as PyTorch", LogX: true, TickX: kilo, FromZero: true,
	}
	for j, b := range baselines { // dashed lines after solid ones: both show where they coincide
		for i, group := range slices.SortedFunc(maps.Keys(groups), descending) {
			c.add(out, label(group, b.name), chart.StyleAs(i, j))
		}
	}
	if len(lengths) > 0 {
		c.set(asFast, slices.Min(lengths), 1)
		c.set(asFast, slices.Max(lengths), 1)
		c.add(out, asFast, chart.Reference)
	}
	return out
}

// asFast labels the line of a generation that takes as long as PyTorch's.
const asFast = "1x: as fast as PyTorch"

func descending(a, b int) int { return cmp.Compare(b, a) }

// kilo formats a length in units of 1,024: 4K.
func kilo(n float64) string {
	if n >= 1024 && int(n)%1024 == 0 {
		return fmt.Sprintf("%.0fK", n/1024)
	}
	return fmt.Sprintf("%.0f", n)
}
