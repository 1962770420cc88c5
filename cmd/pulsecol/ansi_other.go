//go:build !windows

package main

import "os"

// obeysANSI reports whether a terminal has ANSI escape sequences.
func obeysANSI(*os.File) bool { return os.Getenv("TERM") != "dumb" }
