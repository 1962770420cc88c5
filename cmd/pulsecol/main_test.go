package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"pulsecol": main,
		// The command with a line of progress after every sample.
		"pulsecol-progress": func() {
			lineInterval = 0
			main()
		},
		// The command, and then its peak memory.
		"pulsecol-peak": func() {
			status := run(os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr})
			fmt.Fprintf(os.Stderr, "peak %d\n", procStatus("VmHWM"))
			os.Exit(status)
		},
	})
}

// TestScripts runs testdata/script: command lines and their output.
func TestScripts(t *testing.T) {
	if raceEnabled {
		t.Skip("starts many processes, which is slow with the race detector; the other tests run in this one")
	}
	data := filepath.Dir(golden.Dir(t, "llada"))
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("DATA", data)
			env.Setenv("LLADA", filepath.Join(data, "llada"))
			env.Setenv("DREAM", filepath.Join(data, "dream"))
			env.Setenv("GGUF", filepath.Join(data, "gguf"))
			small, err := filepath.Abs("../../internal/tinymodel/llada")
			env.Setenv("SMALL", small)
			// In the cuda build the command may need it to find CUDA's libraries.
			env.Setenv("LD_LIBRARY_PATH", os.Getenv("LD_LIBRARY_PATH"))
			return err
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "cuda":
				return cudaop.Available() == nil, nil
			case "cudabuild":
				return cudaop.Compiled, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// status N COMMAND...: COMMAND exits with N, says one line that starts
			// with "pulsecol: " on the standard error, and nothing else.
			"status": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: status N COMMAND...")
				}
				err := ts.Exec(args[1], args[2:]...)
				got := "0"
				if err != nil {
					got = strings.TrimPrefix(err.Error(), "exit status ")
				}
				if got != args[0] {
					ts.Fatalf("exit status %s, want %s", got, args[0])
				}
				if out := ts.ReadFile("stdout"); out != "" {
					ts.Fatalf("output %q, want none", out)
				}
				said := ts.ReadFile("stderr")
				if !strings.HasPrefix(said, "pulsecol: ") || strings.Index(said, "\n") != len(said)-1 || strings.Contains(said, "goroutine") {
					ts.Fatalf("the standard error is %q, want one line", said)
				}
			},
			// sameids GENERATION FILE: the prompt of a generation in JSON has the ids in FILE.
			"sameids": func(ts *testscript.TestScript, neg bool, args []string) {
				var g generation
				var want []int32
				ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &g))
				ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &want))
				if slices.Equal(g.PromptIDs, want) == neg {
					ts.Fatalf("the prompt is %v, the ids in %s are %v", g.PromptIDs, args[1], want)
				}
			},
			// lines FILE N: FILE has N lines.
			"lines": func(ts *testscript.TestScript, _ bool, args []string) {
				if got := strconv.Itoa(strings.Count(ts.ReadFile(args[0]), "\n")); got != args[1] {
					ts.Fatalf("%s has %s lines, want %s", args[0], got, args[1])
				}
			},
			// damage FILE puts a semicolon in the place of the first colon of its second line.
			"damage": func(ts *testscript.TestScript, _ bool, args []string) {
				lines := strings.SplitAfter(ts.ReadFile(args[0]), "\n")
				lines[1] = strings.Replace(lines[1], ":", ";", 1)
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(lines, "")), 0o600))
			},
			// truncate FILE N cuts N bytes off the end of FILE.
			"truncate": func(ts *testscript.TestScript, _ bool, args []string) {
				n, err := strconv.ParseInt(args[1], 10, 64)
				ts.Check(err)
				info, err := os.Stat(ts.MkAbs(args[0]))
				ts.Check(err)
				ts.Check(os.Truncate(ts.MkAbs(args[0]), info.Size()-n))
			},
			// safetensors HEADER N FILE writes a file of the header and N zero bytes.
			"safetensors": func(ts *testscript.TestScript, _ bool, args []string) {
				header := strings.TrimSpace(ts.ReadFile(args[0]))
				n, err := strconv.Atoi(args[1])
				ts.Check(err)
				file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
				file = append(append(file, header...), make([]byte, n)...)
				ts.Check(os.WriteFile(ts.MkAbs(args[2]), file, 0o600))
			},
		},
	})
}
