package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/inspect"
)

// inspection is what inspect prints.
type inspection struct {
	Model        string          `json:"model"`
	ModelType    string          `json:"model_type"`
	PromptTokens int             `json:"prompt_tokens"`
	NewTokens    int             `json:"new_tokens"`
	Steps        int             `json:"steps"`
	Layers       int             `json:"layers"`
	Heads        int             `json:"heads"`
	Seed         uint64          `json:"seed"`
	Queries      string          `json:"queries"` // that count: all or generated
	Cache        string          `json:"cache,omitempty"`
	PrefillEvery *int            `json:"prefill_every,omitempty"` // with a cache
	BlockLength  int             `json:"block_length,omitempty"`  // with a cache
	Methods      []methodSummary `json:"methods"`
	Pictures     []string        `json:"pictures,omitempty"` // files

	title string // of the model, in pictures
}

// methodSummary is the result of one method. Means are over the steps for which it has
// selected keys.
type methodSummary struct {
	Method       string  `json:"method"`
	Pattern      string  `json:"pattern"`
	Schedule     string  `json:"schedule,omitempty"` // none if fixed by position
	Sparsity     float64 `json:"sparsity"`           // 0 if fixed by position
	GroupSize    *int    `json:"group_size"`         // null where no queries share keys
	RefreshSteps []int   `json:"refresh_steps"`
	measures
	Layers []measures    `json:"layers"`
	Steps  []stepSummary `json:"fidelity"`
}

// measures are means over heads and steps, of one layer or of all.
type measures struct {
	Recall  *float64 `json:"recall"` // null if no keys were selected
	Mass    *float64 `json:"mass"`
	Density *float64 `json:"density"`
	Churn   *float64 `json:"churn"` // null with less than two refreshes
	Union   *float64 `json:"union"` // as columns.Table.Union; null where 128 queries have less than two groups
}

// stepSummary is the fidelity in one step.
type stepSummary struct {
	Step   int         `json:"step"`
	Mode   string      `json:"mode"`            // dense until keys are selected, then refresh or reuse
	Kind   string      `json:"kind,omitempty"`  // with a cache: prefill, commit or block
	Block  *stepBlock  `json:"block,omitempty"` // with a cache
	Recall [][]float32 `json:"recall"`          // [layers][heads]; null in a dense step
	Mass   [][]float32 `json:"mass"`
}

// stepBlock is the active rows of a step.
type stepBlock struct {
	First int `json:"first"` // position of the first row
	Rows  int `json:"rows"`
}

// fidelity is the mean over layers and heads, NaN in a dense step.
func (s *stepSummary) fidelity() inspect.Fidelity {
	return inspect.Fidelity{Recall: mean(flat(s.Recall)), Mass: mean(flat(s.Mass))}
}

func flat(x [][]float32) (all []float64) {
	for _, row := range x {
		for _, v := range row {
			all = append(all, float64(v))
		}
	}
	return all
}

// mean is NaN without any value.
func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// known returns nil for NaN, which JSON does not have.
func known(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	return &x
}

// summary returns the results of the method.
func (m *inspected) summary() methodSummary {
	s := methodSummary{
		Method: m.method, Pattern: m.Pattern.String(), Sparsity: m.Sparsity, GroupSize: m.groupSize(),
		RefreshSteps: append([]int{}, m.refreshes...), Steps: m.steps,
	}
	if m.Schedule != nil {
		s.Schedule = fmt.Sprint(m.Schedule)
	}
	var recall, mass, density, churn, union []float64
	for l := range m.tables {
		var r, w []float64
		for _, step := range m.steps {
			if step.Recall != nil {
				r = append(r, flat(step.Recall[l:l+1])...)
				w = append(w, flat(step.Mass[l:l+1])...)
			}
		}
		s.Layers = append(s.Layers, measures{known(mean(r)), known(mean(w)), known(mean(m.density[l])), known(mean(m.churn[l])), known(mean(m.union[l]))})
		recall, mass = append(recall, r...), append(mass, w...)
		density, churn, union = append(density, m.density[l]...), append(churn, m.churn[l]...), append(union, m.union[l]...)
	}
	s.measures = measures{known(mean(recall)), known(mean(mass)), known(mean(density)), known(mean(churn)), known(mean(union))}
	return s
}

// print prints the tables, or all of it as a JSON object.
func (i *inspection) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, i)
	}
	attention, queries := "full attention", i.Queries+" queries"
	if i.Cache != "" {
		attention += fmt.Sprintf(" and a %s cache, blocks of %d", i.Cache, i.BlockLength)
		queries = map[string]string{"all": "active rows", "generated": "active rows of generated tokens"}[i.Queries]
	}
	fmt.Fprintf(w, "%s (%s), %d tokens, %d of them generated in %d steps with %s; %d layers of %d heads\n",
		i.Model, i.ModelType, i.PromptTokens+i.NewTokens, i.NewTokens, i.Steps, attention, i.Layers, i.Heads)
	fmt.Fprintf(w, "%% of what each method would have kept, means over %s, heads and steps; - before its first choice of keys\n"+
		"union: different keys of the groups of 128 neighbouring queries, over those of one group; - where that is one group\n\n", queries)

	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "method\tdensity\trecall\tmass\tchurn\tunion\tpattern\trefreshed at")
	for _, m := range i.Methods {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Method, percent(m.Density), percent(m.Recall), percent(m.Mass), percent(m.Churn), ratio(m.Union), m.Pattern, m.when())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		cell  func(m *measures) string
	}{
		{"recall", func(m *measures) string { return percent(m.Recall) }},
		{"mass", func(m *measures) string { return percent(m.Mass) }},
		{"density", func(m *measures) string { return percent(m.Density) }},
		{"churn", func(m *measures) string { return percent(m.Churn) }},
		{"union", func(m *measures) string { return ratio(m.Union) }},
	} {
		err := i.table(w, part.title+" by layer", i.Layers, 0, func(m *methodSummary, layer int) string {
			return part.cell(&m.Layers[layer])
		})
		if err != nil {
			return err
		}
	}
	for _, part := range []struct {
		title string
		value func(f inspect.Fidelity) float64
	}{
		{"recall", func(f inspect.Fidelity) float64 { return f.Recall }},
		{"mass", func(f inspect.Fidelity) float64 { return f.Mass }},
	} {
		err := i.table(w, part.title+" by step, * refreshed", i.Steps, 1, func(m *methodSummary, step int) string {
			text := percent(known(part.value(m.Steps[step].fidelity())))
			if m.Steps[step].Mode == pulsecol.Refresh.String() {
				return text + "*"
			}
			return text + " "
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// when lists the refreshes of a method.
func (m *methodSummary) when() string {
	switch {
	case m.Schedule == "":
		return "fixed"
	case m.Schedule == pulsecol.Always{}.String():
		return "every step"
	}
	return strings.Trim(fmt.Sprint(m.RefreshSteps), "[]")
}

// table prints a column for each method and rows rows, numbered from first.
func (i *inspection) table(w io.Writer, title string, rows, first int, cell func(m *methodSummary, row int) string) error {
	fmt.Fprintf(w, "\n%s\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, m := range i.Methods {
		fmt.Fprintf(t, "\t%s", m.Method)
	}
	fmt.Fprintln(t, "\t")
	for row := range rows {
		fmt.Fprint(t, strconv.Itoa(first+row))
		for k := range i.Methods {
			fmt.Fprintf(t, "\t%s", cell(&i.Methods[k], row))
		}
		fmt.Fprintln(t, "\t")
	}
	return t.Flush()
}

// percent is "-" for nil.
func percent(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", 100**x)
}

// ratio is "-" for nil.
func ratio(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", *x)
}
