package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Output of a model or a file may hold escape sequences, with which a terminal moves the
// cursor, changes its title or sends input. So commands write to a terminal through a
// terminalWriter. Pipes and files get every byte unchanged.

// terminalWriter writes text to a terminal, with control characters replaced.
type terminalWriter struct {
	file io.Writer
	rest []byte // the first bytes of an incomplete character
}

// forTerminal returns f as commands write to it.
func forTerminal(f *os.File) io.Writer {
	if term.IsTerminal(int(f.Fd())) {
		return &terminalWriter{file: f}
	}
	return f
}

// terminalOf returns the terminal that w writes to and that obeys escape sequences,
// or nil.
func terminalOf(w io.Writer) *os.File {
	if t, ok := w.(*terminalWriter); ok {
		w = t.file
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && obeysANSI(f) {
		return f
	}
	return nil
}

func (t *terminalWriter) Write(p []byte) (int, error) {
	text := bytes.ReplaceAll(append(t.rest, p...), []byte("\r\n"), []byte("\n"))
	var clean []byte
	for len(text) > 0 && utf8.FullRune(text) {
		r, n := utf8.DecodeRune(text)
		clean = utf8.AppendRune(clean, harmless(r))
		text = text[n:]
	}
	t.rest = text
	_, err := t.file.Write(clean)
	return len(p), err
}

// harmless returns r, or U+FFFD for a control character other than the newline and the
// tab, or one that changes the direction of text.
func harmless(r rune) rune {
	switch {
	case r == '\n', r == '\t':
	case unicode.IsControl(r), r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069:
		return utf8.RuneError
	}
	return r
}

// printable returns text for one line of a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r = harmless(r); r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, text)
}

// dimmed returns text with the attribute "dim", unless NO_COLOR is set: see
// https://no-color.org.
func dimmed(text string) string {
	if os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[2m" + text + "\x1b[0m"
}
