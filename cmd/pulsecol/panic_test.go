package main

import (
	"bytes"
	"strings"
	"testing"
)

// broken is an input that panics.
type broken struct{}

func (broken) Read([]byte) (int, error) { panic("index out of range\n[3]") }

// TestPanicIsAFailure: the status after a panic is that of a failure, not Go's 2, which
// stands for wrong usage.
func TestPanicIsAFailure(t *testing.T) {
	for _, c := range []struct {
		debug string
		want  string
		stack bool
	}{
		{"", "pulsecol: internal error: index out of range [3] (PULSECOL_DEBUG=1 shows where)\n", false},
		{"1", "pulsecol: internal error: index out of range [3]\n", true},
	} {
		t.Setenv(debugVariable, c.debug)
		var out, said bytes.Buffer
		if status := run([]string{"tokenize"}, stdio{broken{}, &out, &said}); status != exitFailure {
			t.Errorf("exit status %d, want %d", status, exitFailure)
		}
		line, stack, _ := strings.Cut(said.String(), "\n")
		if line+"\n" != c.want || strings.Contains(stack, "panic_test.go") != c.stack || out.Len() > 0 {
			t.Errorf("said %q", said.String())
		}
	}
}
