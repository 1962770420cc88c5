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

// What a model or a file says may hold escape sequences, which a terminal would
// obey: move the cursor, change the title, answer in the user's name. So all that
// commands write to a terminal goes through a terminalWriter. Pipes and files get
// every byte as it is.

// terminalWriter writes text to a terminal, with what a terminal would obey replaced.
type terminalWriter struct {
	file io.Writer
	rest []byte // the beginning of a character whose other bytes are to come
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

// harmless returns r, or U+FFFD for what a terminal would obey: control characters
// other than the newline and the tab, and those that turn the direction of text
// around.
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

// dimmed returns text in less light on terminals whose user wants colours: see
// https://no-color.org.
func dimmed(text string) string {
	if os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[2m" + text + "\x1b[0m"
}
