package main

import (
	"fmt"
	"strings"
)

// method is a method of attention at a sparsity; 0 is none.
type method struct {
	name, method string
	sparsity     float64
}

// methods are the rows of tables of answers.
var methods = []method{
	{"full attention", "full", 0},
	{"PulseCol 80 %", "pulsecol", 0.8}, {"PulseCol 90 %", "pulsecol", 0.9},
	{"SparseD 80 %", "sparsed", 0.8}, {"SparseD 90 %", "sparsed", 0.9},
	{"BS+PR (blocks, refreshed) 80 %", "block-pr", 0.8}, {"BS+PR (blocks, refreshed) 90 %", "block-pr", 0.9},
	{"CS+SS (columns, not refreshed) 80 %", "column-ss", 0.8}, {"CS+SS (columns, not refreshed) 90 %", "column-ss", 0.9},
	{"sliding window", "window", 0}, {"streaming", "streaming", 0},
}

// line is the name of the method without its sparsity.
func (m method) line() string {
	return strings.TrimSuffix(strings.TrimSuffix(m.name, " 80 %"), " 90 %")
}

// score writes the percentage of right answers and its standard error.
func score(r record) string {
	return fmt.Sprintf("%.1f ± %.1f", r.number("score"), r.number("stderr"))
}

// answer returns the record of a method in a table of methods, nil if it was not measured.
func (t *table) answer(model, task, method string, sparsity float64) record {
	want := record{"model": model, "task": task, "method": method, "samples": 200, "minus": nil, "schedule": nil, "group_size": nil}
	if sparsity > 0 {
		want["sparsity"] = sparsity
	}
	for _, r := range t.find("eval", want) {
		return r
	}
	return nil
}

func answers(t *table, model string, tasks ...string) {
	heading := []string{"method", "kept"}
	for _, task := range tasks {
		heading = append(heading, "`"+task+"`")
	}
	t.add(heading...)
	for _, m := range methods {
		cells := []string{m.name, ""}
		for _, task := range tasks {
			r := t.answer(model, task, m.method, m.sparsity)
			if r == nil {
				cells = append(cells, "")
				continue
			}
			cells[1] = fmt.Sprintf("%.0f %%", 100*r.number("kept"))
			cells = append(cells, score(r))
		}
		t.add(cells...)
	}
}

func answersMinus(t *table) {
	columns := []struct{ model, task, heading string }{
		{"dream", "tracking@1024", "`tracking@1024`, Dream type"}, {"llada", "multiquery@1024", "`multiquery@1024`, LLaDA type"},
		{"dream", "multiquery@1024", "`multiquery@1024`, Dream type"},
	}
	heading := []string{"PulseCol at 90 % minus"}
	for _, c := range columns {
		heading = append(heading, c.heading)
	}
	t.add(heading...)
	for _, other := range []struct{ method, name string }{
		{"full", "full attention"}, {"sparsed", "SparseD"}, {"block-pr", "BS+PR"}, {"column-ss", "CS+SS"},
	} {
		cells := []string{other.name}
		for _, c := range columns {
			r := t.one("eval", record{"model": c.model, "task": c.task, "minus": other.method})
			cells = append(cells, fmt.Sprintf("%+.1f ± %.1f", r.number("score"), r.number("stderr")))
		}
		t.add(cells...)
	}
}

func answersSchedules(t *table) {
	t.add("up to so many refreshes", "1", "2", "3", "4")
	for _, part := range []struct{ model, task, name string }{
		{"dream", "tracking@512", "Dream type, `tracking@512`"}, {"llada", "multiquery@512", "LLaDA type, `multiquery@512`"},
	} {
		full := t.one("eval", record{"model": part.model, "task": part.task, "method": "full"})
		t.add("**"+part.name+"**, full attention "+score(full), "", "", "", "")
		for _, s := range []struct {
			name, schedule string
			eta            float64
		}{{"uniform", "uniform", 0.3}, {"random", "random", 0.3}, {"power", "power", 0.3}, {"uniform, η = 1", "uniform", 1}, {"adaptive", "adaptive", 1}} {
			cells := []string{s.name}
			for refreshes := 1; refreshes <= 4; refreshes++ {
				cell := ""
				for _, r := range t.find("eval", record{"model": part.model, "task": part.task, "schedule": s.schedule, "eta": s.eta, "refreshes": refreshes}) {
					cell = score(r)
					if made := r.number("refreshes_mean"); made > 0 {
						cell += fmt.Sprintf(" (%.3g made)", made)
					}
				}
				cells = append(cells, cell)
			}
			t.add(cells...)
		}
	}
}

func answersRefreshes(t *table) {
	heading, cells := []string{"refreshes, uniform"}, []string{"score"}
	for _, n := range []int{1, 2, 4, 9} {
		heading = append(heading, fmt.Sprint(n))
		cells = append(cells, score(t.one("eval", record{"model": "llada", "task": "multiquery@512", "schedule": "uniform", "eta": 0.3, "refreshes": n})))
	}
	t.add(append(heading, "full attention")...)
	t.add(append(cells, score(t.one("eval", record{"model": "llada", "task": "multiquery@512", "method": "full"})))...)
}

func answersGroups(t *table) {
	heading, cells := []string{"queries in a group, 9 refreshes"}, []string{"score"}
	for _, n := range []int{8, 16, 32, 64, 128} {
		heading = append(heading, fmt.Sprint(n))
		cells = append(cells, score(t.one("eval", record{"model": "llada", "task": "multiquery@512", "group_size": n})))
	}
	t.add(heading...)
	t.add(cells...)
}

func inspectUnion(t *table) {
	t.add("model", "tokens", "group 32, 80 %", "group 32, 90 %", "group 64, 80 %")
	for _, model := range []struct{ model, name string }{{"llada", "small LLaDA type"}, {"dream", "small Dream type"}} {
		for _, n := range []int{800, 1032, 2032, 4032} {
			cells := []string{model.name, number(float64(n))}
			for _, at := range []struct {
				group    int
				sparsity float64
			}{{32, 0.8}, {32, 0.9}, {64, 0.8}} {
				cells = append(cells, fmt.Sprintf("%.2f", t.one("inspect", record{"model": model.model, "tokens": n, "group": at.group, "sparsity": at.sparsity}).number("union")))
			}
			t.add(cells...)
		}
	}
}

// answersCaches has the answers of generations with a cache of keys and values.
func answersCaches(t *table) {
	t.add("dual cache", "prefill", "full attention", "80 %", "90 %")
	for _, part := range []struct {
		model, name string
		tasks       []string
		every       []int
	}{
		{"llada", "LLaDA type, blocks of 8", []string{"multiquery@512", "lists@512", "arithmetic@512", "multiquery@1024"}, []int{1, 0}},
		{"llada", "", []string{"multiquery@2048"}, []int{0}},
		{"dream", "Dream type, one block of 32", []string{"tracking@512", "multiquery@512", "lists@512", "arithmetic@512", "tracking@1024", "multiquery@1024", "tracking@2048"}, []int{0}},
	} {
		if part.name != "" {
			t.add("**"+part.name+"**", "", "", "", "")
		}
		for _, task := range part.tasks {
			for _, every := range part.every {
				cells := []string{"`" + task + "`", map[int]string{0: "once", 1: "every block"}[every]}
				for _, m := range []method{{"", "full", 0}, {"", "pulsecol", 0.8}, {"", "pulsecol", 0.9}} {
					want := record{"model": part.model, "task": task, "cache": "dual", "prefill_every": every, "method": m.method}
					if m.sparsity > 0 {
						want["sparsity"] = m.sparsity
					}
					cells = append(cells, score(t.one("caches", want)))
				}
				t.add(cells...)
			}
		}
	}
}

// answersGGUF has the answers of the small models in files of several types.
func answersGGUF(t *table) {
	columns := []struct{ model, task, heading string }{
		{"llada", "multiquery@512", "LLaDA type: `multiquery@512`"}, {"llada", "lists@512", "`lists@512`"}, {"llada", "arithmetic@512", "`arithmetic@512`"},
		{"dream", "multiquery@512", "Dream type: `multiquery@512`"}, {"dream", "tracking@512", "`tracking@512`"}, {"dream", "lists@512", "`lists@512`"}, {"dream", "arithmetic@512", "`arithmetic@512`"},
	}
	heading := []string{"weights"}
	for _, c := range columns {
		heading = append(heading, c.heading)
	}
	t.add(append(heading, "texts equal to BF16's")...)
	for _, typ := range []string{"BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M"} {
		cells, same := []string{typ}, 0.0
		for _, c := range columns {
			r := t.one("gguf", record{"model": c.model, "task": c.task, "type": typ, "samples": 200})
			cells = append(cells, score(r))
			same += r.number("same") / float64(len(columns))
		}
		t.add(append(cells, fmt.Sprintf("%.1f %%", 100*same))...)
	}
}
