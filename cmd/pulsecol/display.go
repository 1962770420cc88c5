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
	screen
	m     *openModel
	watch bool
	start time.Time
}

func newDisplay(w io.Writer, m *openModel, watch bool) *display {
	d := &display{screen: newScreen(w), m: m, watch: watch, start: time.Now()}
	d.redraw("step 1 ...")
	return d
}

// load shows how much of the weights is on the GPU.
func (d *display) load(done, total int64) {
	d.redraw(fmt.Sprintf("%s weights on the GPU: %s of %s", bar(float64(done)/float64(total)), byteSize(done), byteSize(total)))
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

// progressBarWidth is that of the bar alone, in columns.
const progressBarWidth = 16

// bar is a share of 1 as a bar.
func bar(share float64) string {
	full := int(progressBarWidth * share)
	return strings.Repeat("█", full) + strings.Repeat(string(maskBlock), progressBarWidth-full)
}

// screen is a place of a terminal where text replaces earlier text. It does
// nothing if its writer is no terminal.
type screen struct {
	w        io.Writer
	terminal *os.File // nil if w is none
	lines    int      // drawn
}

func newScreen(w io.Writer) screen {
	s := screen{w: w}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && obeysANSI(f) {
		s.terminal = f
	}
	return s
}

// close removes what is on the terminal.
func (s *screen) close() { s.redraw("") }

// maskBlock stands for a mask on a terminal.
const maskBlock = '░'

// redraw puts text in the place of what it drew before; of a long text, as many
// of the last lines as fit.
func (s *screen) redraw(text string) {
	if s.terminal == nil {
		return
	}
	width, height, err := term.GetSize(int(s.terminal.Fd()))
	if err != nil || width < 2 || height < 2 {
		width, height = 80, 24
	}
	var b strings.Builder
	b.WriteByte('\r')
	if s.lines > 1 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines-1) // up to the first line
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
	s.lines = len(lines)
	io.WriteString(s.w, b.String())
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
