package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/pulsecol/pulsecol/models/llada"
	"golang.org/x/term"
)

// display shows a generation in progress on the standard error. Unless it is
// asked to watch, it is silent when that is no terminal.
type display struct {
	w        io.Writer
	m        *openModel
	watch    bool
	terminal *os.File // nil if w is none
	start    time.Time
	lines    int // on the terminal
}

func newDisplay(w io.Writer, m *openModel, watch bool) *display {
	d := &display{w: w, m: m, watch: watch, start: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && obeysANSI(f) {
		d.terminal = f
		d.redraw("step 1 ...")
	}
	return d
}

// step shows the state after a denoising step.
func (d *display) step(p llada.Progress) {
	ids := p.IDs[0]
	if len(ids) > p.Prompt { // else it only fills in the prompt
		ids = ids[p.Prompt:]
	}
	if d.terminal == nil {
		if d.watch {
			text := strings.ReplaceAll(render(d.m, ids, "_"), "\n", `\n`)
			fmt.Fprintf(d.w, "step %d of %d, %s: %s\n", p.Step, p.Total, p.Mode, printable(text))
		}
		return
	}
	rest := float64(p.Total-p.Step) * p.Seconds
	status := fmt.Sprintf("step %d of %d, %s, %s, about %s left", p.Step, p.Total, p.Mode, seconds(time.Since(d.start).Seconds()), seconds(rest))
	if d.watch {
		d.redraw(render(d.m, ids, string(maskBlock)) + "\n" + status)
	} else {
		d.redraw(status)
	}
}

// close removes what is on the terminal.
func (d *display) close() {
	if d.terminal != nil {
		d.redraw("")
	}
}

// maskBlock stands for a mask on a terminal.
const maskBlock = '░'

// redraw puts text in the place of what it drew before; of a long text, as many
// of the last lines as fit.
func (d *display) redraw(text string) {
	width, height, err := term.GetSize(int(d.terminal.Fd()))
	if err != nil || width < 2 || height < 2 {
		width, height = 80, 24
	}
	var b strings.Builder
	b.WriteByte('\r')
	if d.lines > 1 {
		fmt.Fprintf(&b, "\x1b[%dA", d.lines-1) // up to the first line
	}
	b.WriteString("\x1b[J") // clear from here on
	lines := wrap(text, width-1)
	lines = lines[max(0, len(lines)-(height-1)):]
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(strings.ReplaceAll(printable(line), string(maskBlock), "\x1b[2m"+string(maskBlock)+"\x1b[0m"))
	}
	d.lines = len(lines)
	io.WriteString(d.w, b.String())
}

// wrap cuts text into lines of at most width columns.
func wrap(text string, width int) []string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		from, columns := 0, 0
		for i, r := range line {
			w := 1
			if r >= 0x1100 && r != maskBlock { // where wide characters begin; a narrow one only wraps early
				w = 2
			}
			if columns+w > width {
				lines = append(lines, line[from:i])
				from, columns = i, 0
			}
			columns += w
		}
		lines = append(lines, line[from:])
	}
	return lines
}
