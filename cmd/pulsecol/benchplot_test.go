package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/chart"
)

// content is a chart's lines without their styles.
func content(c *chart.Chart) map[string][]chart.Point {
	lines := map[string][]chart.Point{}
	for _, l := range c.Lines {
		lines[l.Label] = l.Points
	}
	return lines
}

// TestGenerationChart: a generation of ours against as many steps of PyTorch's with
// the same rows of logits, at lengths where both were measured.
func TestGenerationChart(t *testing.T) {
	ours := func(n, group, steps int, ms float64) timedRow {
		return timedRow{e2eRow: e2eRow{Shape: "s", N: n, Rows: 128, Group: group, Sparsity: 0.8, Steps: steps, MS: ms}}
	}
	theirs := func(n, rows int, attention string, ms float64) timedRow {
		return timedRow{e2eRow: e2eRow{Shape: "s", N: n, Rows: rows, MS: ms}, Attention: attention}
	}
	whole := ours(4096, 32, 10, 1)
	whole.WholeMS = 500
	madeUp := ours(4096, 32, 10, 1)
	madeUp.Shared = new(float64)
	gpu := theirs(4096, 128, "fa2", 200)
	gpu.GPU = "a GPU, driver 1"
	picture := generationChart([]timedRow{
		ours(4096, 32, 10, 500), ours(8192, 32, 10, 900), ours(4096, 32, 20, 1), ours(4096, 0, 10, 1000), whole, madeUp,
		gpu, theirs(4096, 4096, "fa2", 900), theirs(4096, 128, "cudnn", 100), theirs(16384, 128, "fa2", 3),
		{e2eRow: e2eRow{Shape: "other", N: 4096, Rows: 128, MS: 7}, Attention: "fa2"},
	}, "s", 10)
	if want := "s, 10 steps, a GPU, 80 % sparsity"; picture.Title != want {
		t.Errorf("title %q, want %q", picture.Title, want)
	}
	got := content(picture)
	want := map[string][]chart.Point{
		"group 32 vs FlashAttention-2": {{X: 4096, Y: 4}}, "group 32 vs cuDNN": {{X: 4096, Y: 2}},
		"full attention vs FlashAttention-2": {{X: 4096, Y: 2}}, "full attention vs cuDNN": {{X: 4096, Y: 1}},
		asFast: {{X: 4096, Y: 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestKernelChart: rows of both programs, scaled to the same number of heads. Columns of shared
// keys and kernels for other GPUs are left out. The title names the GPU if the file does.
func TestKernelChart(t *testing.T) {
	row := kernelRow{N: 1000, Heads: 8, HeadDim: 128}
	rows := slices.Repeat([]kernelRow{row}, 6)
	rows[0].Kernel, rows[0].MS, rows[0].FA2MS, rows[0].CuDNNMS = "dense", 2, 4, 3
	rows[1].Kernel, rows[1].Group, rows[1].Sparsity, rows[1].MS, rows[1].Heads = "columnsparse_sm90_d128_g32", 32, 0.8, 1, 32
	rows[2].Kernel, rows[2].Group, rows[2].Sparsity, rows[2].MS, rows[2].Share = "columnsparse_sm90_d128_g32", 32, 0.8, 7, 0.7
	rows[3].Kernel, rows[3].MS = "denseattn_sm80_d128", 7
	rows[4].Kernel, rows[4].MS = "scorecollect_sm90_d128_g32", 7
	rows[5] = kernelRow{GPU: "a GPU, driver 1"}
	want := map[string][]chart.Point{
		"full attention": {{X: 1000, Y: 8}}, "columns, group 32, 80 %": {{X: 1000, Y: 1}},
		"FlashAttention-2": {{X: 1000, Y: 16}}, "cuDNN": {{X: 1000, Y: 12}},
	}
	got := kernelChart(rows)
	if diff := cmp.Diff(want, content(got)); diff != "" {
		t.Error(diff)
	}
	if want := "attention of one layer, a GPU, bfloat16, 32 heads of 128"; got.Title != want {
		t.Errorf("title %q, want %q", got.Title, want)
	}
}

// TestSummed: the time of a generation is that of its steps, by mode.
func TestSummed(t *testing.T) {
	ms := map[pulsecol.Mode]float64{pulsecol.Dense: 100, pulsecol.Refresh: 10, pulsecol.Reuse: 1}
	sum, refreshes := summed(10, turns{pulsecol.Reuse, pulsecol.Refresh, pulsecol.Reuse}, ms)
	if sum != 3*10+7*1 || refreshes != 3 {
		t.Errorf("%v ms, %d refreshes; want 37 and 3", sum, refreshes)
	}
	if sum, refreshes = summed(5, pulsecol.AlwaysDense{}, ms); sum != 500 || refreshes != 0 {
		t.Errorf("full attention: %v ms, %d refreshes; want 500 and 0", sum, refreshes)
	}
}
