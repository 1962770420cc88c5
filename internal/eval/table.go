package eval

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// WriteMarkdown writes the table in the shape of the paper's: a row for each
// method, a column for each task, and the average; scores in per cent with their
// standard errors. Below come the differences to full attention and to PulseCol.
func (t *Table) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	t.section(&b, fmt.Sprintf("Score in %%, ± standard error; samples a cell: %s. Kept: share of query-key pairs that sparse steps compute; refr.: refreshes in a generation, on average.", t.samples()), true,
		func(r *CellResult) Mean { return r.Score }, "%.1f")
	if _, ok := t.full(); ok && len(t.Methods) > 1 {
		b.WriteByte('\n')
		t.section(&b, "Difference to full attention on the same prompts, in points.", false,
			func(r *CellResult) Mean { return r.VsFull }, "%+.1f")
	}
	if t.comparesPulseCol() {
		b.WriteByte('\n')
		t.section(&b, "Difference to PulseCol (its first row of the same sparsity) on the same prompts, in points.", false,
			func(r *CellResult) Mean { return r.VsPulse }, "%+.1f")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// section writes one table of means. all says whether rows without any value are
// written too.
func (t *Table) section(b *strings.Builder, caption string, all bool, f func(*CellResult) Mean, format string) {
	kept := ""
	if all {
		kept = " kept | refr. |"
	}
	columns := strings.Join(t.Tasks, " | ")
	if len(t.Tasks) > 1 {
		columns += " | avg"
	}
	head := fmt.Sprintf("| method |%s %s |", kept, columns)
	fmt.Fprintf(b, "%s\n\n%s\n|%s\n", caption, head, strings.Repeat("---|", strings.Count(head, "|")-1))
	for i, label := range Labels(t.Methods) {
		m := t.Methods[i]
		var row strings.Builder
		values := 0
		for _, task := range t.Tasks {
			r := t.Cell(task, m)
			values += f(r).N
			fmt.Fprintf(&row, " %s |", percent(f(r), format))
		}
		if values == 0 && !all {
			continue
		}
		fmt.Fprintf(b, "| %s |", label)
		if all {
			fmt.Fprintf(b, " %s | %s |",
				t.span(m, "%.0f %%", func(r *CellResult) float64 { return 100 * r.Kept }),
				t.span(m, "%.4g", func(r *CellResult) float64 { return r.Refreshes }))
		}
		if len(t.Tasks) > 1 {
			fmt.Fprintf(&row, " %s |", percent(t.Average(m, f), format))
		}
		fmt.Fprintf(b, "%s\n", row.String())
	}
}

// percent formats a mean of shares with its standard error.
func percent(m Mean, format string) string {
	if math.IsNaN(m.Mean) {
		return "–"
	}
	text := fmt.Sprintf(format, 100*m.Mean)
	if !math.IsNaN(m.StdErr) {
		text += fmt.Sprintf(" ± %.1f", 100*m.StdErr)
	}
	return text
}

// span formats a value of the cells of a method: "20 %", or "12 % to 40 %" if it
// differs between tasks.
func (t *Table) span(m Method, format string, of func(*CellResult) float64) string {
	low, high := math.Inf(1), math.Inf(-1)
	for _, task := range t.Tasks {
		if r := t.Cell(task, m); r.Samples > 0 {
			low, high = min(low, of(r)), max(high, of(r))
		}
	}
	switch from, to := fmt.Sprintf(format, low), fmt.Sprintf(format, high); {
	case high < low:
		return "–"
	case from == to:
		return from
	default:
		return from + " to " + to
	}
}

// samples formats the numbers of samples of the cells: "200" or "180 to 200".
func (t *Table) samples() string {
	low, high := math.MaxInt, 0
	for _, task := range t.Tasks {
		for _, m := range t.Methods {
			n := t.Cell(task, m).Samples
			low, high = min(low, n), max(high, n)
		}
	}
	if low == high {
		return strconv.Itoa(low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}

func (t *Table) comparesPulseCol() bool {
	for _, r := range t.cells {
		if r.VsPulse.N > 0 {
			return true
		}
	}
	return false
}

// Summary is a cell of the table, for programs. Differences are those to full
// attention and to PulseCol at the same sparsity, on the same prompts.
type Summary struct {
	Cell
	Samples   int       `json:"samples"`
	Score     *Estimate `json:"score"` // null where nothing is marked
	VsFull    *Estimate `json:"vs_full"`
	VsPulse   *Estimate `json:"vs_pulsecol"`
	Kept      float64   `json:"kept"`
	Refreshes float64   `json:"refreshes_mean"`
	Tokens    float64   `json:"tokens"`
	Seconds   float64   `json:"seconds"`
	Partial   bool      `json:"partial,omitempty"` // the evaluation was interrupted; set by the caller
}

// Estimate is a [Mean] in JSON.
type Estimate struct {
	Mean   float64  `json:"mean"`
	StdErr *float64 `json:"stderr"` // null below two values
	N      int      `json:"n"`      // different prompts
}

// Summaries returns the cells, by task and then by method.
func (t *Table) Summaries() []Summary {
	var out []Summary
	for _, task := range t.Tasks {
		for _, m := range t.Methods {
			r := t.Cell(task, m)
			out = append(out, Summary{
				Cell: r.Cell, Samples: r.Samples, Score: estimate(r.Score), VsFull: estimate(r.VsFull), VsPulse: estimate(r.VsPulse),
				Kept: r.Kept, Refreshes: r.Refreshes, Tokens: r.Tokens, Seconds: r.Seconds,
			})
		}
	}
	return out
}

func estimate(m Mean) *Estimate {
	if m.N == 0 {
		return nil
	}
	e := &Estimate{Mean: m.Mean, N: m.N}
	if m.N > 1 {
		e.StdErr = &m.StdErr
	}
	return e
}
