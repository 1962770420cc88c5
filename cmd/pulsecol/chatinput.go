package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/pulsecol/pulsecol/internal/infile"
	"golang.org/x/term"
)

// messageReader reads what a user says. Its error at the end is io.EOF.
type messageReader interface{ next() (string, error) }

// newMessageReader returns a reader of the standard input, and whether that is a terminal.
func newMessageReader(std stdio) (in messageReader, interactive bool) {
	file, ok := std.in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return &lineReader{in: bufio.NewReader(std.in)}, false
	}
	screen := terminalOf(std.err)
	if screen == nil {
		return &plainReader{in: bufio.NewReader(std.in), out: std.err}, true
	}
	editor := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{file, screen}, "")
	raw := func() (func(), error) {
		state, err := term.MakeRaw(int(file.Fd()))
		if err != nil {
			return nil, err
		}
		restore := untilEnded(screen, func() {
			editor.SetBracketedPasteMode(false)
			_ = term.Restore(int(file.Fd()), state) // there is no other way to restore it
		})
		if width, height, err := term.GetSize(int(screen.Fd())); err == nil && width > 0 {
			_ = editor.SetSize(width, height) // affects only where lines wrap
		}
		editor.SetBracketedPasteMode(true)
		return restore, nil
	}
	return &editedReader{editor, raw}, true
}

// untilEnded returns restore for a command that goes on. A signal that ends it calls
// restore as well: a shell could not use the terminal that it leaves otherwise.
func untilEnded(screen io.Writer, restore func()) func() {
	ends, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(ends, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case <-over:
		case <-ends:
			restore()
			fmt.Fprintln(screen) // after the prompt
			os.Exit(exitInterrupted)
		}
	}()
	return func() {
		restore()
		signal.Stop(ends)
		close(over)
	}
}

// Prompts of a message and of its other lines.
const (
	promptText   = "> "
	continueText = ". "
)

// lineReader takes each line as a message.
type lineReader struct {
	in   *bufio.Reader
	read int
}

func (r *lineReader) next() (string, error) {
	r.read++
	line, err := infile.ReadLine(r.in, fmt.Sprintf("line %d of the standard input", r.read), maxLine)
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(line), "\r\n"), nil
}

// plainReader reads lines from a terminal without editing keys.
type plainReader struct {
	in  *bufio.Reader
	out io.Writer
}

func (r *plainReader) next() (string, error) {
	lines := lineReader{in: r.in}
	return joined(func(prompt string) (string, error) {
		fmt.Fprint(r.out, prompt)
		return lines.next()
	})
}

// editedReader reads lines from a terminal with editing keys.
type editedReader struct {
	editor *term.Terminal
	raw    func() (restore func(), err error) // while a line is edited
}

func (r *editedReader) next() (string, error) {
	restore, err := r.raw()
	if err != nil {
		return "", err
	}
	defer restore()
	return joined(func(prompt string) (string, error) {
		r.editor.SetPrompt(prompt)
		line, err := r.editor.ReadLine()
		if errors.Is(err, term.ErrPasteIndicator) { // a pasted newline continues the message, like a backslash
			return line + `\`, nil
		}
		return line, err
	})
}

// joined reads lines as long as they end in a backslash.
func joined(read func(prompt string) (string, error)) (string, error) {
	var message strings.Builder
	for prompt := promptText; ; prompt = continueText {
		line, err := read(prompt)
		if err != nil {
			return "", err
		}
		line, more := strings.CutSuffix(line, `\`)
		message.WriteString(line)
		if !more {
			return message.String(), nil
		}
		message.WriteByte('\n')
	}
}
