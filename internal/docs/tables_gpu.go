package main

import "fmt"

// tables are the tables that pages may name.
var tables = map[string]func(*table){
	"readme-gpu":        readmeGPU,
	"gpu-steps":         gpuSteps,
	"gpu-short-steps":   gpuShortSteps,
	"gpu-generations":   gpuGenerations,
	"gpu-shared":        gpuShared,
	"gpu-memory":        gpuMemory,
	"gpu-logits":        gpuLogits,
	"cache-steps":       gpuCacheSteps,
	"cache-prefills":    gpuCachePrefills,
	"cache-generations": gpuCacheGenerations,
	"kernel-columns":    kernelColumns,
	"kernel-full":       kernelFull,
	"kernel-refresh":    kernelRefresh,
	"kernel-shared":     kernelShared,
	"kernel-layers":     kernelLayers,
	"readme-cpu":        readmeCPU,
	"cpu-attention":     cpuAttention,
	"cpu-linear":        cpuLinear,
	"cpu-steps":         cpuSteps,
	"cpu-cache-steps":   cpuCacheSteps,
	"cpu-amx":           cpuAMX,
	"cpu-precision":     cpuPrecision,
	"cpu-error":         cpuError,
	"cpu-quantized":     cpuQuantized,

	"cpu-quantized-steps": cpuQuantizedSteps,
	"answers-llada": func(t *table) {
		answers(t, "llada", "retrieval@1024", "multiquery@1024", "lists@600", "arithmetic@600")
	},
	"answers-dream": func(t *table) {
		answers(t, "dream", "retrieval@1024", "tracking@1024", "multiquery@1024", "lists@600", "arithmetic@600")
	},
	"answers-minus":     answersMinus,
	"answers-schedules": answersSchedules,
	"answers-refreshes": answersRefreshes,
	"answers-groups":    answersGroups,
	"answers-caches":    answersCaches,
	"answers-gguf":      answersGGUF,
	"inspect-union":     inspectUnion,
}

// pytorch returns the milliseconds of a step in PyTorch with an attention kernel and the
// logits of 128 rows.
func (t *table) pytorch(shape string, n int, attention string) float64 {
	return t.one("e2e", record{"code": "pytorch", "shape": shape, "n": n, "rows": 128, "attention": attention, "cache": nil}).number("ms")
}

// step returns the record of a step of a mode; group is 0 for full attention.
func (t *table) step(shape string, n, group int, mode string) record {
	want := record{"code": nil, "shape": shape, "n": n, "mode": mode, "shared": nil, "steps": nil, "cache": nil}
	if group > 0 {
		want["group"], want["sparsity"] = group, 0.8
	}
	return t.one("e2e", want)
}

// generation returns the milliseconds of a generation of steps steps. share is the share of a
// group's keys that its neighbours have too; nil for the tables of refreshes.
func (t *table) generation(shape string, n, group, steps int, share any) float64 {
	return t.one("e2e", record{"shape": shape, "n": n, "group": group, "mode": "pulsecol", "steps": steps, "shared": share, "whole_ms": nil, "cache": nil}).number("ms")
}

func readmeGPU(t *table) {
	t.add("tokens", "PyTorch, FlashAttention-2 / cuDNN", "full attention", "reuse step, 80 % sparsity", "1,024 steps, refreshes included")
	for _, n := range []int{4096, 16384, 65536} {
		fa2, cudnn := t.pytorch("llada-8b", n, "fa2"), t.pytorch("llada-8b", n, "cudnn")
		all := t.generation("llada-8b", n, 128, 1024, nil)
		t.add(number(float64(n)), number(fa2)+" / "+number(cudnn)+" ms", number(t.step("llada-8b", n, 0, "dense").number("ms"))+" ms",
			number(t.step("llada-8b", n, 128, "reuse").number("ms"))+" ms", times(1024*fa2, all)+" / "+times(1024*cudnn, all)+" as fast")
	}
}

// longRuns are the models and lengths of whole steps.
var longRuns = []struct {
	shape, name string
	n           int
	groups      []int
}{
	{"llada-8b", "LLaDA-8B", 4096, []int{128, 32}}, {"llada-8b", "LLaDA-8B", 16384, []int{128, 32}}, {"llada-8b", "LLaDA-8B", 65536, []int{128, 32}},
	{"llada-8b", "LLaDA-8B", 131072, []int{128, 32}}, {"dream-7b", "Dream-7B", 65536, []int{128}},
}

func gpuSteps(t *table) {
	t.add("model", "tokens", "PyTorch, FA2", "PyTorch, cuDNN", "full", "refresh, group 128", "reuse, group 128", "refresh, group 32", "reuse, group 32")
	for _, r := range longRuns {
		cells := []string{r.name, number(float64(r.n)), number(t.pytorch(r.shape, r.n, "fa2")), number(t.pytorch(r.shape, r.n, "cudnn")),
			number(t.step(r.shape, r.n, 0, "dense").number("ms"))}
		for _, group := range r.groups {
			for _, mode := range []string{"refresh", "reuse"} {
				cells = append(cells, number(t.step(r.shape, r.n, group, mode).number("ms")))
			}
		}
		for len(cells) < 9 {
			cells = append(cells, "")
		}
		t.add(cells...)
	}
}

func gpuShortSteps(t *table) {
	t.add("model", "tokens", "full", "refresh", "reuse", "PyTorch, FA2", "PyTorch, cuDNN")
	for _, r := range []struct {
		shape, name string
		lengths     []int
	}{{"llada-8b", "LLaDA-8B", []int{256, 512, 1024, 2048}}, {"embedded", "small LLaDA type", []int{512, 1024, 2048}}} {
		for _, n := range r.lengths {
			cells := []string{r.name, number(float64(n)), number(t.step(r.shape, n, 0, "dense").number("ms")),
				number(t.step(r.shape, n, 32, "refresh").number("ms")), number(t.step(r.shape, n, 32, "reuse").number("ms")), "", ""}
			if r.shape != "embedded" {
				cells[5], cells[6] = number(t.pytorch(r.shape, n, "fa2")), number(t.pytorch(r.shape, n, "cudnn"))
			}
			t.add(cells...)
		}
	}
}

func gpuGenerations(t *table) {
	t.add("model", "tokens", "group", "T = 128", "T = 1,024")
	for _, r := range longRuns {
		for _, group := range r.groups {
			cells := []string{r.name, number(float64(r.n)), fmt.Sprint(group)}
			for _, steps := range []int{128, 1024} {
				cells = append(cells, t.against(r.shape, r.n, group, steps, nil))
			}
			t.add(cells...)
		}
	}
}

// against formats the seconds of a generation, and PyTorch's time relative to them.
func (t *table) against(shape string, n, group, steps int, share any) string {
	ms := t.generation(shape, n, group, steps, share)
	return fmt.Sprintf("%s s (%s / %s)", number(ms/1000), times(float64(steps)*t.pytorch(shape, n, "fa2"), ms), times(float64(steps)*t.pytorch(shape, n, "cudnn"), ms))
}

func gpuShared(t *table) {
	t.add("tokens", "keys shared within 128 queries", "reuse, group 32", "T = 1,024")
	for _, r := range []struct {
		n     int
		share float64
	}{{16384, 0.55}, {65536, 0.55}, {65536, 0.83}} {
		step := t.one("e2e", record{"shape": "llada-8b", "n": r.n, "group": 32, "mode": "reuse", "shared": r.share})
		t.add(number(float64(r.n)), fmt.Sprintf("%.0f %%", 100*r.share), number(step.number("ms"))+" ms", t.against("llada-8b", r.n, 32, 1024, r.share))
	}
}

func gpuMemory(t *table) {
	t.add("tokens", "group 128", "group 32")
	for _, n := range []int{4096, 16384, 65536, 131072} {
		cells := []string{number(float64(n))}
		for _, group := range []int{128, 32} {
			cells = append(cells, fmt.Sprintf("%.1f GiB", t.step("llada-8b", n, group, "refresh").number("held_bytes")/(1<<30)))
		}
		t.add(cells...)
	}
}

func gpuLogits(t *table) {
	t.add("model and input", "kernels for any GPU", "kernels for Hopper", "PyTorch, bfloat16")
	for _, r := range t.find("logits", record{"kernels": "any GPU"}) {
		hopper := ""
		for _, h := range t.find("logits", record{"kernels": "Hopper", "logits": r["logits"]}) {
			hopper = number(h.number("relative_error"))
		}
		theirs, _ := t.one("logits", record{"code": "pytorch", "logits": r["logits"]})["relative_error"].([]any)
		t.add(r.text("logits"), number(r.number("relative_error")), hopper, interval(theirs))
	}
}

// interval writes the ends of an interval, or the one number that both are.
func interval(ends []any) string {
	if len(ends) != 2 {
		return ""
	}
	low, high := ends[0].(float64), ends[1].(float64)
	if low == high {
		return number(low)
	}
	return number(low) + " to " + number(high)
}
