package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
)

// debugVariable is the environment variable that shows the stack of a panic.
const debugVariable = "PULSECOL_DEBUG"

// reportPanic prints a line for an error of the program itself, and the stack if
// debugVariable is set. It is called by a deferred function, on the stack of the panic.
func reportPanic(w io.Writer, cause any) {
	text := strings.Join(strings.Fields(fmt.Sprint(cause)), " ")
	if os.Getenv(debugVariable) != "" {
		fmt.Fprintf(w, "pulsecol: internal error: %s\n%s", text, debug.Stack())
		return
	}
	fmt.Fprintf(w, "pulsecol: internal error: %s (%s=1 shows where)\n", text, debugVariable)
}
