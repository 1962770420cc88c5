package chaos

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal of a command that has it alone.
type terminal struct {
	keys, end *os.File // what a person types and sees; the command's side
	mu        sync.Mutex
	seen      bytes.Buffer // of what the command wrote
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { keys.Close() })
	fd := int(keys.Fd())
	must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(t, err)
	must(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 60}))
	end, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { end.Close() })
	term := &terminal{keys: keys, end: end}
	go func() {
		p := make([]byte, 1<<12)
		for {
			n, err := keys.Read(p)
			term.mu.Lock()
			term.seen.Write(p[:n])
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return term
}

// text returns what the command wrote so far.
func (m *terminal) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen.String()
}

// settings are those that a command must leave as it found them.
func (m *terminal) settings(t *testing.T) unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(m.end.Fd()), unix.TCGETS)
	must(t, err)
	return *s
}

// start starts a command whose standard streams are the terminal, which is its
// controlling one.
func (m *terminal) start(t *testing.T, c command) *process {
	t.Helper()
	c.stdin, c.stdout, c.stderr, c.session = m.end, m.end, m.end, true
	c.env = append(c.env, "TERM=xterm")
	return c.start(t)
}

// waitFor waits until the command has written text.
func (m *terminal) waitFor(p *process, text string) bool {
	for p.runs() && !strings.Contains(m.text(), text) {
		time.Sleep(time.Millisecond)
	}
	return strings.Contains(m.text(), text)
}

// left wants the terminal as it was: its settings, the screen that is not the
// alternate one, and pasted text without brackets.
func (m *terminal) left(t *testing.T, c command, before unix.Termios) {
	t.Helper()
	if after := m.settings(t); after != before {
		t.Errorf("%s: the terminal's settings were %+v, and are %+v", c, before, after)
	}
	for _, mode := range []string{"\x1b[?1049", "\x1b[?2004"} {
		back := func() bool { return strings.Count(m.text(), mode+"h") == strings.Count(m.text(), mode+"l") }
		for start := time.Now(); !back() && time.Since(start) < 10*time.Second; { // until the reader has all that was written
			time.Sleep(time.Millisecond)
		}
		if !back() {
			t.Errorf("%s: took %q without giving it back: %q", c, mode, shortened(m.text()))
		}
	}
}

// TestTerminal: a command that is ended at a terminal, by a key or by a signal and at
// any moment, gives it back.
func TestTerminal(t *testing.T) {
	long := []string{"--gen-length", "32", "--block-length", "32", "--steps", "32"}
	watch := pulsecol(append([]string{"generate", "--watch"}, long...)...)
	chat := pulsecol(append([]string{"chat", "--watch"}, long...)...)
	const question = "Please sort the list 3 1 2.\r"
	type way struct {
		name  string
		c     command
		after string // what the command has written before the end
		keys  string // typed then
		then  string // what it has written after them
		end   string // typed at last, or
		sig   syscall.Signal
	}
	ways := []way{
		{"Ctrl-C while it generates", watch, "\x1b[?1049h", "", "", "\x03", 0},
		{"SIGTERM while it generates", watch, "\x1b[?1049h", "", "", "", syscall.SIGTERM},
		{"SIGINT while it generates", watch, "\x1b[?1049h", "", "", "", syscall.SIGINT},
		{"SIGHUP while it generates", watch, "\x1b[?1049h", "", "", "", syscall.SIGHUP},
		{"Ctrl-C at the prompt", chat, "> ", "", "", "\x03", 0},
		{"Ctrl-D at the prompt", chat, "> ", "", "", "\x04", 0},
		{"/exit", chat, "> ", "", "", "/exit\r", 0},
		{"SIGTERM at the prompt", chat, "> ", "", "", "", syscall.SIGTERM},
		{"SIGINT at the prompt", chat, "> ", "", "", "", syscall.SIGINT},
		{"SIGHUP at the prompt", chat, "> ", "", "", "", syscall.SIGHUP},
		{"Ctrl-C while it answers, then Ctrl-D", chat, "> ", question, "\x1b[?1049h", "\x03", 0},
		{"SIGTERM while it answers", chat, "> ", question, "\x1b[?1049h", "", syscall.SIGTERM},
	}
	for _, w := range ways {
		for seed := range seeds(pick(1, 10)) {
			rng := rand.New(rand.NewPCG(uint64(seed), 20))
			term := newTerminal(t)
			before := term.settings(t)
			c := w.c
			c.note = fmt.Sprintf("%s, seed %d", w.name, seed)
			p := term.start(t, c)
			wrote := term.waitFor(p, w.after)
			_, err := term.keys.WriteString(w.keys)
			must(t, err)
			wrote = wrote && term.waitFor(p, w.then)
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
			if w.sig != 0 {
				_ = p.Process.Signal(w.sig)
			} else if _, err := term.keys.WriteString(w.end); err != nil {
				t.Error(err)
			}
			if w.keys != "" { // a conversation goes on after an answer that was stopped
				term.waitFor(p, "forgotten.\r\n\x1b[?2004h> ")
				_, _ = term.keys.WriteString("\x04")
			}
			trials.add("ends at a terminal")
			if r := p.wait(t); !wrote || r.status == failure || r.status == wrongUsage {
				t.Errorf("%s: status %d, signal %v, written so far %t: %q", c, r.status, r.signal, wrote, shortened(term.text()))
			}
			term.left(t, c, before)
		}
	}
}
