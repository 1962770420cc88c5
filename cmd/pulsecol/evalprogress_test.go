package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/pulsecol/pulsecol/internal/eval"
)

// TestProgressLines: where there is no terminal, a line a minute and no control
// characters; nothing in a run shorter than that.
func TestProgressLines(t *testing.T) {
	var said strings.Builder
	b := newProgressBar(&said)
	p := eval.Progress{Done: 3, Samples: 20, CellsDone: 1, Cells: 4, Score: 0.5, Left: 3 * time.Minute}
	b.show(p)
	if said.String() != "" {
		t.Errorf("said %q at once", said.String())
	}
	for range 2 {
		b.drawn = b.drawn.Add(-lineInterval)
		b.show(p)
		b.show(p)
		p.Done, p.Left, p.Score = 20, 0, math.NaN()
	}
	b.close()
	want := "3/20 samples, 1/4 cells, 50.0 % right, 3 min 00 s left\n20/20 samples, 1/4 cells\n"
	if said.String() != want {
		t.Errorf("said %q, want %q", said.String(), want)
	}
}
