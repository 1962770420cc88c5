package main

import "fmt"

// blockStep identifies the steps of blocks in generations with a dual cache.
func blockStep(mode string) record {
	return record{"code": nil, "cache": "dual", "kind": "block", "mode": mode}
}

// like returns the fields of want, with r's model, length, sequences and block.
func (r record) like(want record) record {
	out := record{"cache": r["cache"], "shape": r["shape"], "n": r["n"], "batch": r["batch"], "block_length": r["block_length"]}
	for field, value := range want {
		out[field] = value
	}
	return out
}

// cached returns the fastest of the steps that match want; nil if there is none.
func (t *table) cached(want record) (fastest record) {
	for _, r := range t.find("e2e", want) {
		if fastest == nil || r.number("ms") < fastest.number("ms") {
			fastest = r
		}
	}
	return fastest
}

// ms formats the milliseconds of a record; "" without one.
func (r record) ms() string {
	if r == nil {
		return ""
	}
	return number(r.number("ms"))
}

// what names what a record's row is of: the model, tokens, sequences.
func (r record) what() []string {
	names := map[string]string{"llada-8b": "LLaDA-8B", "dream-7b": "Dream-7B"}
	return []string{names[r.text("shape")], number(r.number("n")), fmt.Sprint(r["batch"])}
}

func gpuCacheSteps(t *table) {
	for i, r := range t.find("e2e", blockStep("reuse")) {
		if i == 0 {
			t.add("model", "tokens", "sequences", "group", "block step: PyTorch", "full", "80 %", "commit: PyTorch", "full", "80 %", "memory")
		}
		cells := append(r.what(), fmt.Sprint(r["group"]))
		for _, kind := range []string{"block", "commit"} {
			ours := record{"code": nil, "kind": kind, "mode": "dense", "group": nil}
			columns := r
			if kind == "commit" {
				columns = t.cached(r.like(record{"code": nil, "kind": kind, "group": r["group"], "sparsity": r["sparsity"]}))
			}
			cells = append(cells, t.cached(r.like(record{"code": "pytorch", "kind": kind})).ms(), t.cached(r.like(ours)).ms(), columns.ms())
		}
		t.add(append(cells, fmt.Sprintf("%.1f GiB", r.number("held_bytes")/(1<<30)))...)
	}
}

func gpuCachePrefills(t *table) {
	for i, r := range t.find("e2e", record{"code": nil, "cache": "dual", "kind": "prefill", "mode": "refresh"}) {
		if i == 0 {
			t.add("model", "tokens", "sequences", "group", "PyTorch", "full", "refresh", "reuse")
		}
		t.add(append(r.what(), fmt.Sprint(r["group"]), t.cached(r.like(record{"code": "pytorch", "kind": "prefill"})).ms(),
			t.cached(r.like(record{"code": nil, "kind": "prefill", "mode": "dense"})).ms(), r.ms(),
			t.cached(r.like(record{"code": nil, "kind": "prefill", "mode": "reuse", "group": r["group"]})).ms())...)
	}
}

func gpuCacheGenerations(t *table) {
	for i, r := range t.find("e2e", record{"code": nil, "cache": "dual", "mode": "pulsecol", "whole_ms": nil}) {
		if i == 0 {
			t.add("model", "tokens", "sequences", "new tokens", "steps", "prefills", "group", "PyTorch", "full", "80 %")
		}
		full := t.cached(r.like(record{"code": nil, "mode": "full", "steps": r["steps"], "new_tokens": r["new_tokens"],
			"prefill_every": r["prefill_every"], "whole_ms": nil}))
		cells := append(r.what(), number(r.number("new_tokens")), number(r.number("steps")), fmt.Sprint(r.prefills()), fmt.Sprint(r["group"]))
		theirs := t.cachedPyTorch(r)
		if theirs == 0 {
			t.add(append(cells, "", seconds(full, 0), seconds(r, 0))...)
			continue
		}
		t.add(append(cells, number(theirs/1000)+" s", seconds(full, theirs), seconds(r, theirs))...)
	}
}

// seconds formats the time of a generation, and how much longer theirs takes if there is any.
func seconds(r record, theirs float64) string {
	switch {
	case r == nil:
		return ""
	case theirs == 0:
		return number(r.number("ms")/1000) + " s"
	}
	return fmt.Sprintf("%s s (%s)", number(r.number("ms")/1000), times(theirs, r.number("ms")))
}

// blocks are those of a generation.
func (r record) blocks() int { return int(r.number("new_tokens") / r.number("block_length")) }

// prefills are the blocks of a generation that begin with one.
func (r record) prefills() int {
	every := int(r.number("prefill_every"))
	if every == 0 {
		return 1
	}
	return (r.blocks() + every - 1) / every
}

// cachedPyTorch is the milliseconds of a generation in PyTorch, the sum of its steps; 0
// unless all kinds were measured.
func (t *table) cachedPyTorch(r record) (ms float64) {
	prefills := r.prefills()
	for kind, count := range map[string]int{
		"prefill": prefills, "commit": r.blocks() - prefills, "block": int(r.number("steps")) - r.blocks(),
	} {
		step := t.cached(r.like(record{"code": "pytorch", "kind": kind}))
		if step == nil && count > 0 {
			return 0
		}
		ms += float64(count) * step.number("ms")
	}
	return ms
}
