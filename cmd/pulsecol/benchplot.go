package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulsecol/pulsecol/internal/chart"
)

type benchPlotCmd struct {
	Kernels *string `placeholder:"FILE" help:"What bench kernel --device cuda --json printed: kernels.png, useful TFLOP/s over the length."`
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
	if err := os.MkdirAll(c.Out, 0o777); err != nil {
		return err
	}
	pictures := map[string]*chart.Chart{}
	if c.Kernels != nil {
		rows, err := readRows[kernelRow](*c.Kernels)
		if err != nil {
			return fmt.Errorf("--kernels: %w", err)
		}
		pictures["kernels.png"] = kernelChart(rows)
	}
	if c.E2E != nil {
		rows, err := readRows[timedRow](*c.E2E)
		if err != nil {
			return fmt.Errorf("--e2e: %w", err)
		}
		rows = slices.DeleteFunc(rows, func(r timedRow) bool { return r.Shared != nil }) // of tables that are made up
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
			pictures[fmt.Sprintf("generation-%s.png", shape)] = generationChart(rows, shape, c.Steps)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pictures)) {
		file := filepath.Join(c.Out, name)
		if err := pictures[name].WriteFile(file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		fmt.Fprintln(std.out, file)
	}
	return nil
}

// readRows reads a JSON object a line.
func readRows[T any](name string) ([]T, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rows []T
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var row T
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, n, err)
		}
		rows = append(rows, row)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return rows, nil
}

// kernelRow is a measurement of a kernel, by bench kernel or by the kernels' own
// program, which names them in full.
type kernelRow struct {
	Kernel   string
	N, Heads int
	HeadDim  int `json:"head_dim"`
	Group    int
	Sparsity float64
	Share    float64 // of a group's keys that its neighbours have too
	MS       float64
	TFLOPS   float64
	FA2MS    float64 `json:"fa2_ms"`
	CuDNNMS  float64 `json:"cudnn_ms"`
}

// is says whether the row is of an operation, in the form for Hopper.
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

// kernelChart is the speed of attention: of columns, with random keys in each
// group, and of all keys.
func kernelChart(rows []kernelRow) *chart.Chart {
	c := curves{}
	columns := func(group int, sparsity float64) string {
		return fmt.Sprintf("columns, group %d, %.0f %%", group, 100*sparsity)
	}
	groups, sparsities := map[int]bool{}, map[float64]bool{}
	for _, r := range rows {
		flops := 4 * float64(r.N) * float64(r.N) * float64(r.Heads*r.HeadDim)
		for name, ms := range map[string]float64{"cuDNN": r.CuDNNMS, "FlashAttention-2": r.FA2MS} {
			if ms > 0 {
				c.set(name, r.N, flops/ms/1e9)
			}
		}
		switch {
		case r.is("dense", "dense"):
			c.set("full attention", r.N, r.TFLOPS)
		case r.is("columnsparse", "sparse"):
			c.set(columns(r.Group, r.Sparsity), r.N, r.TFLOPS)
			groups[r.Group], sparsities[r.Sparsity] = true, true
		}
	}
	out := &chart.Chart{
		Title: "attention on one GPU, head dimension 128", X: "tokens", Y: "useful TFLOP/s", LogX: true, TickX: kilo, FromZero: true,
	}
	c.add(out, "full attention", chart.StyleAs(3, 0))
	for i, group := range slices.SortedFunc(maps.Keys(groups), descending) {
		for j, sparsity := range slices.Sorted(maps.Keys(sparsities)) {
			c.add(out, columns(group, sparsity), chart.StyleAs(i, j))
		}
	}
	c.add(out, "cuDNN", chart.StyleAs(4, 2))
	c.add(out, "FlashAttention-2", chart.Reference)
	return out
}

// timedRow is a row of bench e2e, or one of bench/e2e.py, which names its kernel of
// attention.
type timedRow struct {
	e2eRow
	Attention string
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

// generationChart is how much longer PyTorch takes for the steps of a generation,
// with the same number of rows of logits. Column tables that are made up do not count.
func generationChart(rows []timedRow, shape string, steps int) *chart.Chart {
	type step struct {
		attention string
		n, rows   int
	}
	theirs := map[step]float64{} // milliseconds
	for _, r := range rows {
		if r.Shape == shape && r.Attention != "" {
			theirs[step{r.Attention, r.N, r.Rows}] = r.MS
		}
	}
	baselines := []struct{ attention, name string }{{"fa2", "FlashAttention-2"}, {"cudnn", "cuDNN"}}
	c := curves{}
	label := func(group int, name string) string {
		if group == 0 {
			return "full attention over " + name
		}
		return fmt.Sprintf("group %d over %s", group, name)
	}
	groups := map[int]bool{}
	for _, r := range rows {
		if r.Shape != shape || r.Steps != steps || r.WholeMS > 0 || r.Shared != nil {
			continue
		}
		groups[r.Group] = true
		for _, b := range baselines {
			if ms, ok := theirs[step{b.attention, r.N, r.Rows}]; ok {
				c.set(label(r.Group, b.name), r.N, float64(steps)*ms/r.MS)
			}
		}
	}
	out := &chart.Chart{
		Title: fmt.Sprintf("%s, a generation of %d steps", shape, steps), X: "tokens", Y: "times as fast as PyTorch", LogX: true, TickX: kilo, FromZero: true,
	}
	for i, group := range slices.SortedFunc(maps.Keys(groups), descending) {
		for j, b := range baselines {
			c.add(out, label(group, b.name), chart.StyleAs(i, j))
		}
	}
	return out
}

func descending(a, b int) int { return cmp.Compare(b, a) }

// kilo writes lengths as people do: 4K.
func kilo(n float64) string {
	if n >= 1024 && int(n)%1024 == 0 {
		return fmt.Sprintf("%.0fK", n/1024)
	}
	return fmt.Sprintf("%.0f", n)
}
