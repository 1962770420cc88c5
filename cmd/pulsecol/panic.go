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

// reportPanic says in one line that the program itself is wrong, and where if
// debugVariable is set. It is called while the stack is that of the panic.
func reportPanic(w io.Writer, cause any) {
	text := strings.Join(strings.Fields(fmt.Sprint(cause)), " ")
	if os.Getenv(debugVariable) != "" {
		fmt.Fprintf(w, "pulsecol: internal error: %s\n%s", text, debug.Stack())
		return
	}
	fmt.Fprintf(w, "pulsecol: internal error: %s (%s=1 shows where)\n", text, debugVariable)
}
