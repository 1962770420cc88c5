package main

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/pulsecol/pulsecol/internal/eval"
)

// progressBar shows the progress of an evaluation: a bar on a terminal, else a line each
// lineInterval.
type progressBar struct {
	*screen
	drawn time.Time
}

func newProgressBar(w io.Writer) *progressBar {
	b := &progressBar{screen: newScreen(w)}
	if b.terminal == nil {
		b.drawn = time.Now()
	}
	return b
}

// barInterval is the least time between two drawings of a bar.
const barInterval = 100 * time.Millisecond

// lineInterval is the least time between two lines. Tests shorten it.
var lineInterval = time.Minute

func (b *progressBar) show(p eval.Progress) {
	over := time.Since(b.drawn)
	if b.terminal == nil {
		if over >= lineInterval {
			b.drawn = time.Now()
			fmt.Fprintln(b.w, progressText(p))
		}
		return
	}
	if over >= barInterval || p.Done == p.Samples {
		b.drawn = time.Now()
		b.redraw(bar(float64(p.Done)/float64(max(1, p.Samples))) + " " + progressText(p))
	}
}

func progressText(p eval.Progress) string {
	text := fmt.Sprintf("%d/%d samples, %d/%d cells", p.Done, p.Samples, p.CellsDone, p.Cells)
	if !math.IsNaN(p.Score) {
		text += fmt.Sprintf(", %.1f %% right", 100*p.Score)
	}
	if p.Left > 0 && p.Done < p.Samples {
		text += fmt.Sprintf(", %s left", seconds(p.Left.Seconds()))
	}
	return text
}
