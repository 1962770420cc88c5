package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// obeysANSI switches a console to ANSI escape sequences and reports whether it
// has them.
func obeysANSI(f *os.File) bool {
	var mode uint32
	h := windows.Handle(f.Fd())
	return windows.GetConsoleMode(h, &mode) == nil &&
		windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
