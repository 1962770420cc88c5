package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestTerminalWriterReplacesWhatTerminalsObey(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext\n": "plain\ttext\n",
		"日本語, naïve, \u200fעברית, 👩‍👩‍👧": "日本語, naïve, \u200fעברית, 👩‍👩‍👧",
		"a\r\nb":                      "a\nb",
		"a\rb":                        "a\ufffdb",
		"\x1b[2J\x1b]0;title\a":       "\ufffd[2J\ufffd]0;title\ufffd",
		"\u009b2J\x7f\x00\b":          "\ufffd2J\ufffd\ufffd\ufffd",
		"a\u202eb\u202c\u2066c\u2069": "a\ufffdb\ufffd\ufffdc\ufffd",
		"\xff\x9b":                    "\ufffd\ufffd",
	} {
		var whole, bytewise bytes.Buffer
		w := &terminalWriter{file: &whole}
		if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("Write(%q) = %d, %v", text, n, err)
		}
		if whole.String() != want {
			t.Errorf("%q became %q, want %q", text, whole.String(), want)
		}
		w = &terminalWriter{file: &bytewise}
		for i := range len(text) {
			if _, err := w.Write([]byte{text[i]}); err != nil {
				t.Fatal(err)
			}
		}
		if got := bytewise.String(); got != want && !strings.Contains(text, "\r\n") {
			t.Errorf("%q, byte by byte, became %q, want %q", text, got, want)
		}
	}
}

// TestScreenFollowsTheSize: the drawing of --watch depends on the terminal's current size
// only, not on earlier drawings.
func TestScreenFollowsTheSize(t *testing.T) {
	var out bytes.Buffer
	width, height := 40, 10
	s := &screen{w: &out, terminal: &out, size: func() (int, int) { return width, height }}
	s.takeWhole()
	text := strings.Repeat("x", 100) + "\nstep 1"
	drawn := func() []string {
		all := out.String()
		out.Reset()
		_, after, found := strings.Cut(all, home+clearBelow)
		if !found || strings.Contains(after, "\x1b") {
			t.Fatalf("drew %q, want the cursor home, the terminal cleared, and text", all)
		}
		return strings.Split(after, "\n")
	}
	s.redraw(text)
	if lines := drawn(); len(lines) != 4 || len(lines[0]) != 39 {
		t.Errorf("drew %q", lines)
	}
	width, height = 20, 5
	s.draw() // as after a signal
	if lines := drawn(); len(lines) != 4 || len(lines[0]) != 19 || lines[3] != "step 1" {
		t.Errorf("drew %q", lines)
	}
	s.close()
	if out.String() != leaveTerminal {
		t.Errorf("closing wrote %q", out.String())
	}
	out.Reset()
	s.close()
	s.redraw(text)
	if out.Len() > 0 {
		t.Errorf("wrote %q after it was closed", out.String())
	}
}
