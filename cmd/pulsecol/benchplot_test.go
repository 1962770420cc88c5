package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/chart"
)

// content is a chart's lines without their looks.
func content(c *chart.Chart) map[string][]chart.Point {
	lines := map[string][]chart.Point{}
	for _, l := range c.Lines {
		lines[l.Label] = l.Points
	}
	return lines
}

// TestGenerationChart: a generation of ours beside as many steps of PyTorch's with
// the same rows of logits, at lengths where both were measured.
func TestGenerationChart(t *testing.T) {
	ours := func(n, group, steps int, ms float64) timedRow {
		return timedRow{e2eRow: e2eRow{Shape: "s", N: n, Rows: 128, Group: group, Steps: steps, MS: ms}}
	}
	theirs := func(n, rows int, attention string, ms float64) timedRow {
		return timedRow{e2eRow: e2eRow{Shape: "s", N: n, Rows: rows, MS: ms}, Attention: attention}
	}
	whole := ours(4096, 32, 10, 1)
	whole.WholeMS = 500
	madeUp := ours(4096, 32, 10, 1)
	madeUp.Shared = new(float64)
	got := content(generationChart([]timedRow{
		ours(4096, 32, 10, 500), ours(8192, 32, 10, 900), ours(4096, 32, 20, 1), ours(4096, 0, 10, 1000), whole, madeUp,
		theirs(4096, 128, "fa2", 200), theirs(4096, 4096, "fa2", 900), theirs(4096, 128, "cudnn", 100), theirs(16384, 128, "fa2", 3),
		{e2eRow: e2eRow{Shape: "other", N: 4096, Rows: 128, MS: 7}, Attention: "fa2"},
	}, "s", 10))
	want := map[string][]chart.Point{
		"group 32 over FlashAttention-2": {{X: 4096, Y: 4}}, "group 32 over cuDNN": {{X: 4096, Y: 2}},
		"full attention over FlashAttention-2": {{X: 4096, Y: 2}}, "full attention over cuDNN": {{X: 4096, Y: 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestKernelChart: rows of both programs; columns of shared keys and kernels for
// other GPUs have no place in it.
func TestKernelChart(t *testing.T) {
	row := kernelRow{N: 1000, Heads: 1, HeadDim: 128}
	rows := make([]kernelRow, 5)
	for i := range rows {
		rows[i] = row
	}
	rows[0].Kernel, rows[0].TFLOPS, rows[0].FA2MS, rows[0].CuDNNMS = "dense", 600, 0.512e-3, 0.256e-3
	rows[1].Kernel, rows[1].Group, rows[1].Sparsity, rows[1].TFLOPS = "sparse_sm90_d128_g32", 32, 0.8, 200
	rows[2].Kernel, rows[2].Group, rows[2].Sparsity, rows[2].TFLOPS, rows[2].Share = "sparse_sm90_d128_g32", 32, 0.8, 300, 0.7
	rows[3].Kernel, rows[3].TFLOPS = "dense_sm80_d128", 280
	rows[4].Kernel, rows[4].TFLOPS = "score_sm90_d128_g32", 500
	want := map[string][]chart.Point{
		"full attention": {{X: 1000, Y: 600}}, "columns, group 32, 80 %": {{X: 1000, Y: 200}},
		"FlashAttention-2": {{X: 1000, Y: 1000}}, "cuDNN": {{X: 1000, Y: 2000}},
	}
	if diff := cmp.Diff(want, content(kernelChart(rows))); diff != "" {
		t.Error(diff)
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
