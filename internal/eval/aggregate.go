package eval

import (
	"cmp"
	"math"
	"slices"
)

// Mean is the mean of independent values.
type Mean struct {
	N      int     // values
	Mean   float64 // NaN without values
	StdErr float64 // of the mean: standard deviation over √N; NaN below two values
}

// MeanOf returns the mean of values.
func MeanOf(values []float64) Mean {
	m := Mean{N: len(values), StdErr: math.NaN()}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	m.Mean = sum / float64(m.N)
	if m.N < 2 {
		return m
	}
	squares := 0.0
	for _, v := range values {
		squares += (v - m.Mean) * (v - m.Mean)
	}
	m.StdErr = math.Sqrt(squares / float64(m.N-1) / float64(m.N))
	return m
}

// Interval returns the 95 % confidence interval of the share that m estimates:
// Wilson's score interval (1927), which has a positive length even where all answers are
// right or all are wrong. For scores between 0 and 1 it is conservative, because these vary
// less. m has values.
func (m Mean) Interval() (low, high float64) {
	const z = 1.959964 // the normal distribution has 95 % within ±z
	n := float64(m.N)
	middle := (m.Mean + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(m.Mean*(1-m.Mean)/n+z*z/(4*n*n))
	return max(0, min(m.Mean, middle-half)), min(1, max(m.Mean, middle+half))
}

// CellResult aggregates the records of a cell.
type CellResult struct {
	Cell
	Samples int  // records
	Score   Mean // over different prompts; one that was asked several times counts once, with its mean
	VsFull  Mean // difference of the scores to those of full attention on the same prompts
	VsPulse Mean // the same to PulseCol at this sparsity

	// Averages over the records.
	Kept      float64 // share of query-key pairs that sparse steps computed
	Refreshes float64 // in a generation
	Tokens    float64 // of a sequence
	Seconds   float64 // of a sample

	byPrompt map[string]float64 // scores
}

// Table is the result of an evaluation.
type Table struct {
	Tasks   []string
	Methods []Method
	cells   map[Cell]*CellResult
}

// NewTable aggregates records of the given tasks and methods.
func NewTable(tasks []string, methods []Method, records []Record) *Table {
	t := &Table{tasks, methods, map[Cell]*CellResult{}}
	byCell := map[Cell][]Record{}
	for _, rec := range records {
		byCell[rec.Cell] = append(byCell[rec.Cell], rec)
	}
	for _, task := range tasks {
		for _, m := range methods {
			c := Cell{task, m}
			t.cells[c] = newCellResult(c, byCell[c])
		}
	}
	for c, r := range t.cells {
		r.VsFull, r.VsPulse = MeanOf(nil), MeanOf(nil)
		if base, ok := t.full(); ok && base != c.Method {
			r.VsFull = difference(r, t.cells[Cell{c.Task, base}])
		}
		if base, ok := t.pulseCol(c.Method); ok && base != c.Method {
			r.VsPulse = difference(r, t.cells[Cell{c.Task, base}])
		}
	}
	return t
}

// Cell returns the result of a method on a task, both of the table.
func (t *Table) Cell(task string, m Method) *CellResult { return t.cells[Cell{task, m}] }

func newCellResult(c Cell, records []Record) *CellResult {
	r := &CellResult{Cell: c, Samples: len(records), byPrompt: map[string]float64{}}
	scores := map[string][]float64{}
	// Samples are answered in an order that is another in every run; sums of floats must
	// not depend on it.
	slices.SortFunc(records, func(a, b Record) int { return cmp.Or(cmp.Compare(a.Seed, b.Seed), cmp.Compare(a.Index, b.Index)) })
	for _, rec := range records {
		r.Kept += rec.Kept
		r.Refreshes += float64(len(rec.RefreshSteps))
		r.Tokens += float64(rec.Tokens)
		r.Seconds += rec.Seconds
		if rec.Score != nil {
			scores[rec.PromptHash] = append(scores[rec.PromptHash], *rec.Score)
		}
	}
	if n := float64(len(records)); n > 0 {
		r.Kept, r.Refreshes, r.Tokens, r.Seconds = r.Kept/n, r.Refreshes/n, r.Tokens/n, r.Seconds/n
	}
	for prompt, s := range scores {
		r.byPrompt[prompt] = MeanOf(s).Mean
	}
	r.Score = MeanOf(sortedValues(r.byPrompt))
	return r
}

// difference returns the mean of a's scores less b's, over the prompts of both.
func difference(a, b *CellResult) Mean {
	both := map[string]float64{}
	for prompt, score := range a.byPrompt {
		if base, ok := b.byPrompt[prompt]; ok {
			both[prompt] = score - base
		}
	}
	return MeanOf(sortedValues(both))
}

// sortedValues returns the values of m in the order of its keys, so that sums do
// not depend on the order of a map.
func sortedValues(m map[string]float64) []float64 {
	type entry struct {
		key   string
		value float64
	}
	var entries []entry
	for k, v := range m {
		entries = append(entries, entry{k, v})
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	values := make([]float64, len(entries))
	for i, e := range entries {
		values[i] = e.value
	}
	return values
}

// full returns the row of full attention to compare with, the first.
func (t *Table) full() (Method, bool) {
	return t.first(func(m Method) bool { return m.Name == Full })
}

// pulseCol returns the row of PulseCol to compare m with: the first of m's
// sparsity. Methods without a sparsity have none.
func (t *Table) pulseCol(m Method) (Method, bool) {
	return t.first(func(p Method) bool { return p.Name == PulseCol && p.Sparsity == m.Sparsity })
}

func (t *Table) first(meant func(Method) bool) (Method, bool) {
	i := slices.IndexFunc(t.Methods, meant)
	if i < 0 {
		return Method{}, false
	}
	return t.Methods[i], true
}

// Average returns the mean of f over the tasks that are marked, with equal weights. It is
// NaN if the method has no value for one of them.
func (t *Table) Average(m Method, f func(*CellResult) Mean) Mean {
	var sum Mean
	tasks, squares := 0.0, 0.0
	for _, task := range t.Tasks {
		if !t.marked(task) {
			continue
		}
		value := f(t.Cell(task, m))
		tasks++
		sum.N += value.N
		sum.Mean += value.Mean
		squares += value.StdErr * value.StdErr
	}
	return Mean{N: sum.N, Mean: sum.Mean / tasks, StdErr: math.Sqrt(squares) / tasks}
}

// marked says whether a task has scores.
func (t *Table) marked(task string) bool {
	return slices.ContainsFunc(t.Methods, func(m Method) bool { return t.Cell(task, m).Score.N > 0 })
}
