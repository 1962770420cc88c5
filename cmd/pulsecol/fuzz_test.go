package main

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol/internal/golden"
)

// FuzzCommandLine gives commands lists of arguments, one a line. None panics, and
// the exit status is one of those documented. The work of a command does not begin.
// A command takes long to open its model: with -fuzzminimizetime=1x most of the time goes
// into new lists.
func FuzzCommandLine(f *testing.F) {
	stopped(f)
	rng := rand.New(rand.NewPCG(7, 8))
	nodes := leaves(f)
	for _, node := range nodes {
		for range 3 {
			f.Add(randomArguments(rng, node))
		}
	}
	for _, line := range []string{"", "--", "--help", "generate\n--prompt", "bench", "help\ngenerate", "eval\n--task=", "generate\n--\n-1", "\x00\n\xff"} {
		f.Add(line)
	}
	models := strings.NewReplacer("LLADA", golden.Dir(f, "llada"), "DREAM", golden.Dir(f, "dream"))
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "/\\") || len(line) > 1000 {
			t.Skip("leads out of the directory")
		}
		t.Chdir(t.TempDir()) // where --out and --results lead
		args := strings.Split(models.Replace(line), "\n")
		var out, said bytes.Buffer
		status := run(args, stdio{strings.NewReader("text\n"), &out, &said})
		if status != 0 && status != exitFailure && status != exitUsage && status != exitInterrupted {
			t.Errorf("%q: exit status %d", args, status)
		}
		if strings.Contains(said.String(), "internal error") {
			t.Errorf("%q: %s", args, said.String())
		}
		if status != 0 && said.Len() == 0 {
			t.Errorf("%q: exit status %d without a word", args, status)
		}
	})
}

// randomArguments returns some flags of a command with valid or invalid values.
func randomArguments(rng *rand.Rand, node *kong.Node) string {
	var flags []*kong.Flag
	for _, group := range node.AllFlags(true) {
		flags = append(flags, group...)
	}
	args := strings.Fields(strings.TrimPrefix(node.Path(), "pulsecol "))
	values := append([]string{"1", "4", "0.5", "1,2,3", "x", "LLADA", "DREAM", "uniform,random", "pulsecol", "cpu", "llada"}, extremes...)
	for range rng.IntN(6) {
		f := flags[rng.IntN(len(flags))]
		args = append(args, "--"+f.Name+"="+values[rng.IntN(len(values))])
	}
	return strings.Join(args, "\n")
}
