package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	full   = Method{Name: Full}
	pulse  = Method{Name: PulseCol, Sparsity: 0.8, GroupSize: 32, Schedule: "uniform", Eta: 0.3, Refreshes: 8}
	blocks = Method{Name: "block-pr", Sparsity: 0.8, GroupSize: 32, BlockSize: 32, Schedule: "uniform", Eta: 0.3, Refreshes: 8}
	window = Method{Name: "window", Window: 256}
)

// scored returns records of a cell, one for each score. Records at the same index have the
// same prompt. A NaN stands for an unmarked answer.
func scored(task string, m Method, scores ...float64) []Record {
	var out []Record
	for i, score := range scores {
		rec := Record{Job: Job{Cell{task, m}, 0, i}, Asked: Asked{fmt.Sprint(task, i), "data", ""}, Kept: 1 - m.Sparsity, Tokens: 100 + i}
		if m.Refreshes > 0 {
			rec.RefreshSteps = []int{1, 2, 5}
		}
		if !math.IsNaN(score) {
			rec.Score = &score
		}
		out = append(out, rec)
	}
	return out
}

func near(a, b float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-12
}

func checkMean(t *testing.T, what string, got, want Mean) {
	t.Helper()
	if got.N != want.N || !near(got.Mean, want.Mean) || !near(got.StdErr, want.StdErr) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// TestMeanOf compares with values calculated by hand.
func TestMeanOf(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		values []float64
		want   Mean
	}{
		{nil, Mean{0, nan, nan}},
		{[]float64{0.5}, Mean{1, 0.5, nan}},
		{[]float64{1, 1, 1}, Mean{3, 1, 0}},
		{[]float64{0, 1}, Mean{2, 0.5, 0.5}},         // variance (1/4 + 1/4) / 1, over 2
		{[]float64{1, 0, 1, 1}, Mean{4, 0.75, 0.25}}, // variance (3/16 + 9/16) / 3 = 1/4, over 4
		{[]float64{1, 2, 3, 4, 5}, Mean{5, 3, math.Sqrt(0.5)}},
	} {
		checkMean(t, fmt.Sprint(c.values), MeanOf(c.values), c.want)
	}
}

// TestInterval compares Wilson's interval with values calculated by hand, and where all
// answers are right or wrong with z²/(n+z²).
func TestInterval(t *testing.T) {
	for _, c := range []struct {
		mean      Mean
		low, high float64
	}{
		{Mean{N: 10, Mean: 0.5}, 0.23659, 0.76341},
		{Mean{N: 200, Mean: 1}, 0.98115, 1},
		{Mean{N: 3, Mean: 0}, 0, 0.56150},
		{Mean{N: 1, Mean: 1}, 0.20655, 1},
	} {
		low, high := c.mean.Interval()
		if math.Abs(low-c.low) > 1e-5 || math.Abs(high-c.high) > 1e-5 {
			t.Errorf("%+v: %.6f to %.6f, want %v to %v", c.mean, low, high, c.low, c.high)
		}
	}
	if low, high := MeanOf(nil).Interval(); !math.IsNaN(low) || !math.IsNaN(high) {
		t.Errorf("of no values: %v to %v", low, high)
	}
}

func TestPairedDifferences(t *testing.T) {
	var records []Record
	records = append(records, scored("a", full, 1, 1, 0, 1)...)
	records = append(records, scored("a", pulse, 1, 0, 0, 1)...)
	records = append(records, scored("a", blocks, 0, 0, 1)...) // the fourth is missing
	records = append(records, scored("a", window, 0, 0, 0, 0)...)
	table := NewTable([]string{"a"}, []Method{full, pulse, blocks, window}, records)
	none := MeanOf(nil)

	// pulse less full: 0, -1, 0, 0. Variance (3/16 + 9/16) / 3 = 1/4, over 4.
	checkMean(t, "pulse to full", table.Cell("a", pulse).VsFull, Mean{4, -0.25, 0.25})
	checkMean(t, "pulse to itself", table.Cell("a", pulse).VsPulse, none)
	checkMean(t, "full to itself", table.Cell("a", full).VsFull, none)
	// blocks less pulse, on three prompts: -1, 0, 1.
	checkMean(t, "blocks to pulse", table.Cell("a", blocks).VsPulse, Mean{3, 0, math.Sqrt(1.0 / 3)})
	// blocks less full: -1, -1, 1.
	checkMean(t, "blocks to full", table.Cell("a", blocks).VsFull, Mean{3, -1.0 / 3, 2.0 / 3})
	checkMean(t, "window has no sparsity to compare at", table.Cell("a", window).VsPulse, none)
}

// TestRepeatedPrompts: answers to one prompt under several seeds count as one sample.
func TestRepeatedPrompts(t *testing.T) {
	records := append(scored("a", full, 1, 0), scored("a", full, 1, 1)...)
	table := NewTable([]string{"a"}, []Method{full}, records)
	r := table.Cell("a", full)
	checkMean(t, "score", r.Score, Mean{2, 0.75, 0.25}) // of 1 and 1/2
	if r.Samples != 4 {
		t.Errorf("%d samples, want 4", r.Samples)
	}
}

// TestAverage: tasks have equal weights for any number of samples, and unmarked tasks do not
// count.
func TestAverage(t *testing.T) {
	nan := math.NaN()
	var records []Record
	records = append(records, scored("a", full, 1, 0, 1, 1)...) // 0.75 ± 0.25
	records = append(records, scored("b", full, 0, 1)...)       // 0.5 ± 0.5
	records = append(records, scored("humaneval", full, nan, nan)...)
	records = append(records, scored("a", pulse, 1, 1)...)
	table := NewTable([]string{"a", "b", "humaneval"}, []Method{full, pulse}, records)
	score := func(r *CellResult) Mean { return r.Score }
	checkMean(t, "full", table.Average(full, score), Mean{6, 0.625, math.Sqrt(0.25*0.25+0.5*0.5) / 2})
	if m := table.Average(pulse, score); !math.IsNaN(m.Mean) {
		t.Errorf("the average of a method without samples of a task is %v", m)
	}
}

func TestLabels(t *testing.T) {
	other := pulse
	other.Refreshes = 4
	sharper := pulse
	sharper.Sparsity = 0.95
	random := pulse
	random.Schedule = "random"
	cached, once := pulse, pulse
	cached.Cache, cached.PrefillEvery, once.Cache = "dual", 1, "dual"
	for _, c := range []struct {
		methods []Method
		want    []string
	}{
		{[]Method{pulse, cached, {Name: Full, Cache: "prefix", PrefillEvery: 1}}, []string{"pulsecol (80 %)", "pulsecol (80 %, dual cache)", "full (prefix cache)"}},
		{[]Method{cached, once}, []string{"pulsecol (80 %, dual cache, prefill every 1)", "pulsecol (80 %, dual cache, one prefill)"}},
		{[]Method{full, window, pulse, blocks}, []string{"full", "window", "pulsecol (80 %)", "block-pr (80 %)"}},
		{[]Method{pulse, sharper}, []string{"pulsecol (80 %)", "pulsecol (95 %)"}},
		{[]Method{pulse, other, blocks}, []string{"pulsecol (80 %, refreshes 8)", "pulsecol (80 %, refreshes 4)", "block-pr (80 %)"}},
		{[]Method{pulse, random}, []string{"pulsecol (80 %, uniform)", "pulsecol (80 %, random)"}},
	} {
		if diff := cmp.Diff(c.want, Labels(c.methods)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestMarkdown(t *testing.T) {
	var records []Record
	records = append(records, scored("a", full, 1, 0, 1, 1)...)
	records = append(records, scored("b", full, 1, 1, 1, 1)...)
	records = append(records, scored("a", pulse, 1, 0, 0, 0)...)
	records = append(records, scored("b", pulse, 1, 1, 1, 1)...)
	records = append(records, scored("b", blocks, 0)...)
	var out strings.Builder
	if err := NewTable([]string{"a", "b"}, []Method{full, pulse, blocks}, records).WriteMarkdown(&out); err != nil {
		t.Fatal(err)
	}
	want := `Score in %, ± standard error; samples a cell: 0 to 4. Kept: share of query-key pairs that sparse steps compute; refr.: refreshes in a generation, on average.

| method | kept | refr. | a | b | avg |
|---|---|---|---|---|---|
| full | 100 % | 0 | 75.0 ± 25.0 | 100.0 ± 0.0 | 87.5 ± 12.5 |
| pulsecol (80 %) | 20 % | 3 | 25.0 ± 25.0 | 100.0 ± 0.0 | 62.5 ± 12.5 |
| block-pr (80 %) | 20 % | 3 | – | 0.0 | – |

Difference to full attention on the same prompts, in points.

| method | a | b | avg |
|---|---|---|---|
| pulsecol (80 %) | -50.0 ± 28.9 | +0.0 ± 0.0 | -25.0 ± 14.4 |
| block-pr (80 %) | – | -100.0 | – |

Difference to PulseCol (its first row of the same sparsity) on the same prompts, in points.

| method | a | b | avg |
|---|---|---|---|
| block-pr (80 %) | – | -100.0 | – |
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestSummaries(t *testing.T) {
	records := append(scored("a", full, 1, 0), scored("a", pulse, math.NaN())...)
	s := NewTable([]string{"a"}, []Method{full, pulse}, records).Summaries()
	if len(s) != 2 || s[0].Score == nil || s[0].Score.Mean != 0.5 || *s[0].Score.StdErr != 0.5 || s[0].Tokens != 100.5 {
		t.Errorf("full: %+v", s)
	}
	if s[1].Score != nil || s[1].VsFull != nil || s[1].Samples != 1 || s[1].Refreshes != 3 {
		t.Errorf("nothing marked: %+v", s[1])
	}
}

// TestMeansAreOfNoOrder: samples are answered in any order, and their means are equal
// to the last bit; those of equal whole numbers are these.
func TestMeansAreOfNoOrder(t *testing.T) {
	records := scored("a", pulse, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 1)
	for i := range records {
		records[i].Kept, records[i].Tokens = math.Sqrt(float64(i))/4, 208
	}
	want := NewTable([]string{"a"}, []Method{pulse}, records).Summaries()[0]
	if want.Tokens != 208 {
		t.Errorf("%v tokens, want 208", want.Tokens)
	}
	for range 20 {
		rand.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
		if got := NewTable([]string{"a"}, []Method{pulse}, records).Summaries()[0]; got.Kept != want.Kept {
			t.Fatalf("kept %v, in another order %v", want.Kept, got.Kept)
		}
	}
}
