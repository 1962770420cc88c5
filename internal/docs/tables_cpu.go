package main

import (
	"fmt"
	"strings"
)

func readmeCPU(t *table) {
	t.add("float32", "Gorgonia's operators", "pulsecol", "")
	const attention, reuse, block = "attention, 8 heads of 64, 1,024 tokens", "reuse step, 8 heads of 64, 1,024 tokens, 80 %", "transformer block, 512 features, 1,024 tokens"
	for _, r := range []struct{ name, ours, theirs string }{
		{attention, attention, attention}, {"the same, a reuse step at 80 % sparsity", reuse, attention}, {block, block, block},
	} {
		theirs := t.one("gorgonia", record{"benchmark": r.theirs, "by": "gorgonia"})
		ours := t.one("gorgonia", record{"benchmark": r.ours, "by": "pulsecol"})
		shown := ""
		if r.ours == r.theirs {
			shown = costs(theirs)
		}
		t.add(r.name, shown, costs(ours), fmt.Sprintf("%.0fx as fast", theirs.number("ms")/ours.number("ms")))
	}
}

// costs writes the time and the memory of a run.
func costs(r record) string {
	return fmt.Sprintf("%s ms, %.3g MB", number(r.number("ms")), r.number("alloc_mb"))
}

// threads writes a field of the records for one thread and for two.
func (t *table) threads(file string, want record, field, format string) string {
	var cells []string
	for _, threads := range []int{1, 2} {
		want["threads"] = threads
		cells = append(cells, fmt.Sprintf(format, t.one(file, want).number(field)))
	}
	return strings.Join(cells, " / ")
}

// attentions are the rows of tables of attention.
var attentions = []struct {
	name, op string
	group    int
	sparsity float64
}{
	{"full attention", "dense", 0, 0},
	{"columns, group 128, 80 %", "columnsparse", 128, 0.8}, {"columns, group 128, 90 %", "columnsparse", 128, 0.9},
	{"columns, group 32, 80 %", "columnsparse", 32, 0.8}, {"columns, group 32, 90 %", "columnsparse", 32, 0.9},
	{"refresh, group 32, 80 %", "refresh", 32, 0.8},
}

// linears are the sizes of tables of linear layers.
var linears = []struct{ rows, in, out int }{{2048, 256, 1024}, {1024, 1024, 1024}, {32, 4096, 4096}}

func cpuAttention(t *table) {
	t.add("% of peak, 1 / 2 threads", "head dimension 64", "128")
	for _, a := range attentions {
		cells := []string{a.name}
		for _, dim := range []int{64, 128} {
			want := record{"op": a.op, "level": "avx512", "precision": "float32", "head_dim": dim}
			if a.group > 0 {
				want["group"], want["sparsity"] = a.group, a.sparsity
			}
			cells = append(cells, t.threads("cpu", want, "percent_of_peak", "%.0f"))
		}
		t.add(cells...)
	}
}

func cpuLinear(t *table) {
	t.add("% of peak, 1 / 2 threads", "float32 weights", "bfloat16 weights")
	for _, l := range linears {
		cells := []string{fmt.Sprintf("%d rows, %d inputs, %d outputs", l.rows, l.in, l.out)}
		for _, dtype := range []string{"F32", "BF16"} {
			cells = append(cells, t.threads("cpu", record{
				"op": "linear", "level": "avx512", "precision": "float32", "dtype": dtype, "rows": l.rows, "in": l.in, "out": l.out,
			}, "percent_of_peak", "%.0f"))
		}
		t.add(cells...)
	}
}

func cpuSteps(t *table) {
	t.add("model, tokens, threads", "precision", "full", "refresh", "reuse")
	for _, first := range t.find("steps", record{"mode": "dense", "cache": nil}) {
		cells := []string{fmt.Sprintf("%s, %s, %.0f", first.text("model"), number(first.number("n")), first.number("threads")), first.text("precision")}
		for _, mode := range []string{"dense", "refresh", "reuse"} {
			cell := ""
			for _, r := range t.find("steps", record{"mode": mode, "model": first["model"], "n": first["n"], "precision": first["precision"], "cpu": first["cpu"], "cache": nil}) {
				cell = number(r.number("ms")) + " ms"
			}
			cells = append(cells, cell)
		}
		t.add(cells...)
	}
}

// cpuCacheSteps has a row for each kind of step and number of rows.
func cpuCacheSteps(t *table) {
	t.add("step", "rows", "full attention", "columns, 80 %")
	for _, full := range t.find("steps", record{"method": "full"}) {
		step := "no cache"
		if full.text("kind") != "" {
			step = full.text("kind") + ", " + full.text("cache") + " cache"
		}
		var columns []string
		for _, r := range t.find("steps", record{
			"method": "pulsecol", "model": full["model"], "n": full["n"], "cache": full["cache"], "kind": full["kind"], "rows": full["rows"], "cpu": full["cpu"],
		}) {
			text := number(r.number("ms")) + " ms"
			if r.text("mode") == "refresh" {
				text = "refresh " + text
			}
			columns = append(columns, text)
		}
		t.add(step, fmt.Sprintf("%.0f", full.number("rows")), number(full.number("ms"))+" ms", strings.Join(columns, ", "))
	}
}

func cpuAMX(t *table) {
	t.add("GFLOP/s, 1 / 2 threads", "`float32`", "`bfloat16`", "PyTorch, bfloat16")
	for _, a := range attentions {
		for _, dim := range []int{64, 128} {
			plain, theirs := "", ""
			want := func(precision string) record {
				w := record{"op": a.op, "level": "amx", "precision": precision, "head_dim": dim}
				if a.group > 0 {
					w["group"], w["sparsity"] = a.group, a.sparsity
				}
				return w
			}
			if a.op == "dense" {
				plain = t.threads("cpu", want("float32"), "gflops", "%.0f")
				theirs = t.threads("cpu", record{"code": "pytorch", "op": "sdpa", "dtype": "bfloat16", "head_dim": dim}, "gflops", "%.0f")
			}
			t.add(fmt.Sprintf("%s, head dimension %d", a.name, dim), plain, t.threads("cpu", want("bfloat16"), "gflops", "%.0f"), theirs)
		}
	}
	for _, l := range linears {
		size := func(r record) record {
			r["op"], r["rows"], r["in"], r["out"] = "linear", l.rows, l.in, l.out
			return r
		}
		t.add(fmt.Sprintf("linear, %d rows, %d inputs, %d outputs, bfloat16 weights", l.rows, l.in, l.out),
			t.threads("cpu", size(record{"level": "amx", "precision": "float32", "dtype": "BF16"}), "gflops", "%.0f"),
			t.threads("cpu", size(record{"level": "amx", "precision": "bfloat16", "dtype": "BF16"}), "gflops", "%.0f"),
			t.threads("cpu", size(record{"code": "pytorch", "dtype": "bfloat16"}), "gflops", "%.0f"))
	}
}

func cpuPrecision(t *table) {
	cases := []string{"dense, D = 64", "dense, D = 128", "linear 1024^3"}
	t.add("times as fast as `float32`", "full attention, head dimension 64", "128", "linear, 1024 x 1024 x 1024")
	for _, first := range t.find("precision", record{"benchmark": cases[0], "error_rms": nil}) {
		cells := []string{fmt.Sprintf("`%s`, %s", first.text("precision"), first.text("instruction"))}
		for _, c := range cases {
			r := t.one("precision", record{"benchmark": c, "precision": first["precision"], "instruction": first["instruction"]})
			ends, _ := r["times_float32"].([]any)
			cells = append(cells, interval(ends))
		}
		t.add(cells...)
	}
}

func cpuError(t *table) {
	cases := []string{"D = 64", "D = 128", "D = 128, one feature of the keys 20 times larger"}
	t.add(append([]string{"error, root mean square / largest"}, cases...)...)
	for _, precision := range []string{"bfloat16", "int16"} {
		cells := []string{"`" + precision + "`"}
		for _, c := range cases {
			r := t.one("precision", record{"benchmark": c, "precision": precision})
			cells = append(cells, number(r.number("error_rms"))+" / "+number(r.number("error_max")))
		}
		t.add(cells...)
	}
}
