package main

import (
	"fmt"
	"strings"
)

// kernelRuns are the lengths of bench/cuda.jsonl and their heads.
var kernelRuns = []struct{ n, heads int }{{4096, 32}, {16384, 32}, {65536, 8}}

func lengthAndHeads(n, heads int) string { return fmt.Sprintf("%s (%d)", number(float64(n)), heads) }

func kernelFull(t *table) {
	t.add("tokens (heads)", "full attention", "TFLOP/s", "PyTorch, cuDNN", "PyTorch, FA2")
	for _, at := range kernelRuns {
		r := t.one("cuda", record{"kernel": "dense", "n": at.n})
		t.add(lengthAndHeads(at.n, at.heads), number(r.number("ms"))+" ms", number(r.number("tflops")), number(r.number("cudnn_ms"))+" ms", number(r.number("fa2_ms"))+" ms")
	}
}

func kernelColumns(t *table) {
	t.add("group", "tokens (heads)", "80 %", "90 %", "vs FA2", "vs cuDNN")
	for _, group := range []int{128, 64, 32} {
		for _, at := range kernelRuns {
			var ms, fa2, cudnn []string
			for _, sparsity := range []float64{0.8, 0.9} {
				r := t.one("cuda", record{"kernel": "columnsparse", "n": at.n, "group": group, "sparsity": sparsity})
				ms = append(ms, number(r.number("ms"))+" ms")
				fa2 = append(fa2, times(r.number("fa2_ms"), r.number("ms")))
				cudnn = append(cudnn, times(r.number("cudnn_ms"), r.number("ms")))
			}
			t.add(fmt.Sprint(group), lengthAndHeads(at.n, at.heads), ms[0], ms[1], strings.Join(fa2, " / "), strings.Join(cudnn, " / "))
		}
	}
}

func kernelRefresh(t *table) {
	t.add("group", "tokens (heads)", "scores", "top-k", "attention of a refresh", "over cuDNN's full attention")
	for _, group := range []int{128, 32} {
		for _, at := range kernelRuns {
			want := func(kernel string, sparsity float64) record {
				return t.one("cuda", record{"kernel": kernel, "n": at.n, "group": group, "sparsity": sparsity})
			}
			refresh := want("refresh", 0.8)
			t.add(fmt.Sprint(group), lengthAndHeads(at.n, at.heads), number(want("scores", 0).number("ms"))+" ms", number(want("topk", 0.8).number("ms"))+" ms",
				number(refresh.number("ms"))+" ms", fmt.Sprintf("%.2f times", refresh.number("ms")/refresh.number("cudnn_ms")))
		}
	}
}

// long returns a row of the kernels' own program for columns in long runs, which bring the
// GPU to its power limit.
func (t *table) long(group, n int, sparsity, share float64) record {
	for _, r := range t.find("gpu", record{"kernel": fmt.Sprintf("columnsparse_sm90_d128_g%d", group), "n": n, "sparsity": sparsity, "share": share}) {
		if strings.HasPrefix(r.text("timing"), "long runs") {
			return r
		}
	}
	return nil
}

// rates writes TFLOP/s at 80 and 90 %, where both were measured.
func (t *table) rates(group, n int, share float64) string {
	a, b := t.long(group, n, 0.8, share), t.long(group, n, 0.9, share)
	if a == nil || b == nil {
		return ""
	}
	return number(a.number("tflops")) + " / " + number(b.number("tflops"))
}

func kernelShared(t *table) {
	t.add("group", "keys shared within 128 queries", "4,096 (32 heads)", "16,384 (32)", "65,536 (8)", "131,072 (8)")
	for _, r := range []struct {
		group  int
		shares []float64
	}{{128, []float64{0}}, {64, []float64{0, 0.55, 0.7}}, {32, []float64{0, 0.55, 0.83}}} {
		for _, share := range r.shares {
			cells := []string{fmt.Sprint(r.group), ""}
			if r.group < 128 {
				cells[1] = fmt.Sprintf("%.0f %%", 100*share)
			}
			for _, n := range []int{4096, 16384, 65536, 131072} {
				cells = append(cells, t.rates(r.group, n, share))
			}
			t.add(cells...)
		}
	}
}

func kernelLayers(t *table) {
	lengths := []int{4096, 16384, 65536}
	t.add("part of a block", "4,096 tokens", "16,384", "65,536", "rate at 65,536")
	for _, part := range []struct{ layer, name string }{
		{"qkv", "queries, keys, values: one product"}, {"qkv with bias", "the same with bias"}, {"out onto residual", "output, with the residual"},
		{"gate and up", "gate and up: one product"}, {"down onto residual", "down, with the residual"}, {"swiglu", "SwiGLU"},
		{"rmsnorm", "RMSNorm, twice a block"}, {"rope of qkv", "rotation of queries and of keys"}, {"split of qkv", "layout of values"},
		{"copy", "a copy of as many bytes as RMSNorm moves"},
	} {
		cells := []string{part.name}
		rate := ""
		for _, n := range lengths {
			want := record{"layer": part.layer, "n": n}
			products := false
			for _, r := range t.find("layers", want) {
				products = products || r["algorithm"] != nil
			}
			if products {
				want["algorithm"] = "fastest"
			}
			r := t.one("layers", want)
			cells = append(cells, number(r.number("ms")))
			rate = number(r.number("gbs")) + " GB/s"
			if products {
				rate = number(r.number("tflops")) + " TFLOP/s"
			}
		}
		t.add(append(cells, rate)...)
	}
}
