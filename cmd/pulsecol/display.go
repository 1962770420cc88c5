package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/models"
)

// display shows a generation in progress on the standard error. Without --watch it prints
// nothing if the standard error is no terminal.
type display struct {
	*screen
	m     *openModel
	watch bool
	start time.Time
}

func newDisplay(w io.Writer, m *openModel, watch bool) *display {
	d := &display{screen: newScreen(w), m: m, watch: watch, start: time.Now()}
	if watch {
		d.takeWhole()
	}
	d.redraw("step 1 ...")
	return d
}

// load shows how much of the weights is on the GPU.
func (d *display) load(done, total int64) {
	d.redraw(fmt.Sprintf("%s weights on the GPU: %s of %s", bar(float64(done)/float64(total)), byteSize(done), byteSize(total)))
}

// step shows the state after a denoising step.
func (d *display) step(p models.Progress) {
	ids := p.IDs[0]
	if len(ids) > p.Prompt { // else it only fills in the prompt
		ids = ids[p.Prompt:]
	}
	if d.terminal == nil {
		if d.watch {
			text := strings.ReplaceAll(render(d.m, ids, "_"), "\n", `\n`)
			fmt.Fprintf(d.w, "step %d of %d, %s: %s\n", p.Step, p.Total, stepText(p), printable(text))
		}
		return
	}
	rest := float64(p.Total-p.Step) * p.Seconds
	status := fmt.Sprintf("step %d of %d, %s, %s, about %s left", p.Step, p.Total, stepText(p), seconds(time.Since(d.start).Seconds()), seconds(rest))
	if d.watch {
		d.redraw(render(d.m, ids, string(maskBlock)) + "\n" + status)
	} else {
		d.redraw(status)
	}
}

// stepText names what a step computed: its mode, and with a cache its kind.
func stepText(p models.Progress) string {
	if p.Pass.Kind == pulsecol.Whole {
		return p.Mode.String()
	}
	return fmt.Sprintf("%v, %v", p.Pass.Kind, p.Mode)
}

// progressBarWidth is that of the bar alone, in columns.
const progressBarWidth = 16

// bar is a share of 1 as a bar.
func bar(share float64) string {
	full := int(progressBarWidth * share)
	return strings.Repeat("█", full) + strings.Repeat(string(maskBlock), progressBarWidth-full)
}
