package main

import "fmt"

func cpuQuantized(t *table) {
	rows := []int{1, 8, 32, 128}
	t.add("weights, precision", "1 row", "8 rows", "32 rows", "128 rows")
	for _, precision := range []string{"float32", "bfloat16", "int8"} {
		for _, dtype := range []string{"BF16", "Q8_0", "Q4_K", "Q6_K"} {
			if precision == "int8" && dtype == "BF16" {
				continue
			}
			cells := []string{fmt.Sprintf("%s, `%s`", dtype, precision)}
			for _, n := range rows {
				r := t.one("quantized", record{"op": "linear", "dtype": dtype, "precision": precision, "rows": n})
				cells = append(cells, fmt.Sprintf("%.0f", r.number("gflops")))
			}
			t.add(cells...)
		}
	}
}

func cpuQuantizedSteps(t *table) {
	t.add("seconds of a step of 128 / 512 tokens", "`float32`", "`bfloat16`", "`int8`")
	for _, dtype := range []string{"BF16", "Q8_0", "Q4_K_M"} {
		cells := []string{dtype + " weights"}
		for _, precision := range []string{"float32", "bfloat16", "int8"} {
			if precision == "int8" && dtype == "BF16" {
				cells = append(cells, "")
				continue
			}
			seconds := func(n int) float64 {
				return t.one("quantized", record{"op": "step", "dtype": dtype, "precision": precision, "n": n}).number("ms") / 1000
			}
			cells = append(cells, fmt.Sprintf("%.2f / %.2f", seconds(128), seconds(512)))
		}
		t.add(cells...)
	}
}
