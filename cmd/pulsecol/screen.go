package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/term"
)

// screen is the part of a terminal in which text replaces earlier text: its last lines, or
// all of it. It does nothing if its writer is no terminal.
type screen struct {
	w        io.Writer
	terminal io.Writer                  // nil if w is none
	size     func() (width, height int) // of the terminal

	mu    sync.Mutex
	text  string
	lines int           // drawn
	whole chan struct{} // closed when the whole terminal is released; nil if only lines are in use
}

func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
	if f := terminalOf(w); f != nil {
		s.terminal = f
		s.size = func() (width, height int) {
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return 0, 0
			}
			return width, height
		}
	}
	return s
}

// Escape sequences.
const (
	clearBelow    = "\x1b[J"
	home          = "\x1b[H"
	takeTerminal  = "\x1b[?1049h" // the alternate screen
	leaveTerminal = "\x1b[?1049l"
)

// takeWhole makes the screen the whole terminal until it is closed, as an editor does. Some
// terminals rewrap lines when their window changes and some do not, so the position of text
// on a part of the terminal would be unknown.
func (s *screen) takeWhole() {
	if s.terminal == nil {
		return
	}
	s.whole = make(chan struct{})
	interrupts, sizes := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	notifyResize(sizes)
	io.WriteString(s.terminal, takeTerminal)
	go func() {
		defer signal.Stop(interrupts)
		defer signal.Stop(sizes)
		for n := 0; ; {
			select {
			case <-s.whole:
				return
			case <-sizes:
				s.draw()
			case sig := <-interrupts:
				// untilInterrupted handles the first one. The second one ends the process, which
				// has to release the terminal before, and so does SIGHUP.
				if n++; n == 2 || sig == syscall.SIGHUP {
					io.WriteString(s.terminal, leaveTerminal)
					os.Exit(exitInterrupted)
				}
			}
		}
	}()
}

// close removes what is on the terminal.
func (s *screen) close() {
	if s.whole == nil {
		s.redraw("")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.whole: // already
	default:
		close(s.whole)
		io.WriteString(s.terminal, leaveTerminal)
	}
}

// maskBlock stands for a mask on a terminal.
const maskBlock = '░'

// redraw replaces the drawn text. Of a long text it draws the last lines that fit.
func (s *screen) redraw(text string) {
	if s.terminal == nil {
		return
	}
	s.mu.Lock()
	s.text = text
	s.mu.Unlock()
	s.draw()
}

// draw draws the text again, for the terminal's present size.
func (s *screen) draw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	width, height := s.size()
	if width < 2 || height < 2 {
		width, height = 80, 24
	}
	var b strings.Builder
	switch {
	case s.whole != nil:
		select {
		case <-s.whole: // closed in the meantime
			return
		default:
		}
		b.WriteString(home)
	case s.lines > 1:
		fmt.Fprintf(&b, "\r\x1b[%dA", s.lines-1) // up to the first line
	default:
		b.WriteByte('\r')
	}
	b.WriteString(clearBelow)
	lines := wrap(s.text, width-1)
	lines = lines[max(0, len(lines)-(height-1)):]
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(strings.ReplaceAll(printable(line), string(maskBlock), dimmed(string(maskBlock))))
	}
	s.lines = len(lines)
	io.WriteString(s.terminal, b.String())
}

// wrap cuts text into lines of at most width columns.
func wrap(text string, width int) []string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		from, columns := 0, 0
		for i, r := range line {
			w := 1
			if r >= 0x1100 && r != maskBlock { // the first wide character; narrow ones above it wrap early
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
