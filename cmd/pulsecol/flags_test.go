package main

import (
	"bytes"
	"context"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol/internal/golden"
)

// leaves returns all commands of the program.
func leaves(t testing.TB) []*kong.Node {
	t.Helper()
	parser, err := kong.New(&cli{}, flagVars())
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model.Leaves(false)
}

// stopped makes commands stop before their work, as after an interrupt.
func stopped(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	before := background
	background = ctx
	t.Cleanup(func() { background = before })
}

// numeric reports whether a flag takes numbers.
func numeric(f *kong.Flag) bool {
	typ := f.Value.Target.Type()
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	return typ.Kind() >= reflect.Int && typ.Kind() <= reflect.Float64
}

// extremes are numbers that few flags take.
var extremes = []string{"", "-1", "0", "9223372036854775807", "99999999999999999999", "1e300", "-1e300", "NaN", "Inf", "-Inf", "5e-324"}

// taken lists the extremes that flags accept.
var taken = map[string][]string{
	"seed":       {"0", "9223372036854775807"},
	"random-ids": {"0"},
	"warmup":     {"0"},

	"prefill-every": {"0"},

	"layer": {"0"},
	"head":  {"0"},
	"top-k": {"0", "9223372036854775807"}, // all tokens, as in the published code

	// Flags whose range includes the value.
	"sparsity":    {"0", "5e-324"},
	"skip":        {"0", "5e-324"},
	"shared":      {"0", "5e-324"},
	"eta":         {"5e-324"},
	"drift":       {"5e-324"},
	"sinks":       {"5e-324"},
	"threshold":   {"5e-324"},
	"top-p":       {"5e-324"},
	"eps":         {"5e-324"},
	"factor":      {"9223372036854775807", "99999999999999999999", "1e300", "5e-324"},
	"temperature": {"0", "9223372036854775807", "99999999999999999999", "1e300", "5e-324"},
	"alg-temp":    {"0", "9223372036854775807", "99999999999999999999", "1e300", "5e-324"},
	"cfg-scale":   {"0", "5e-324"},

	"inspect/sparsity":      {"5e-324"}, // 0 keeps all keys
	"bench kernel/sparsity": {"0"},      // whole hundredths
}

// inapplicable lists flags that commands share with others and never use.
var inapplicable = map[string]bool{
	"inspect/drift": true, "bench step/drift": true,
	"bench step/eta": true, "bench step/prefill-every": true, "bench step/refreshes": true, "bench step/skip": true,
}

// base returns a command line to which a value of a flag can be added.
func base(t *testing.T, command string, f *kong.Flag) []string {
	model := "llada"
	if f.Tag.Get("model") == "Dream" {
		model = "dream"
	}
	args := strings.Fields(command)
	add := func(flag string, value ...string) {
		if f.Name != flag {
			args = append(append(args, "--"+flag), value...)
		}
	}
	first := func(tag string) string { return strings.Fields(f.Tag.Get(tag))[0] }
	switch command {
	case "bench kernel", "bench plot":
	case "generate", "info", "inspect", "logits", "tokenize", "bench step", "bench e2e":
		add("model", golden.Dir(t, model))
	case "eval", "chat": // which need a tokenizer
		add("small", model)
		if command == "eval" {
			add("task", "lists@80")
		}
	}
	if command != "inspect" && f.Tag.Get("method") != "" {
		add("method", first("method"))
	}
	if f.Name == "prefill-every" {
		add("cache", "dual")
	}
	if f.Tag.Get("schedule") != "" {
		add("schedule", first("schedule"))
	}
	switch command {
	case "generate", "inspect":
		if f.Group == nil || f.Group.Key != "Prompt" {
			add("prompt-ids", "1,2,3")
		}
		if f.Name == "step" || f.Name == "layer" || f.Name == "head" {
			add("out", t.TempDir())
		}
	case "logits":
		add("ids", "1,2,3")
		add("out", t.TempDir()+"/logits")
	case "bench e2e":
		add("length", "200")
	case "bench plot":
		add("kernels", os.DevNull)
	}
	return args
}

// TestExtremeNumbers gives every numeric flag of every command extreme numbers. None panics,
// hangs, takes much memory or is ignored: an error names the flag and its range.
func TestExtremeNumbers(t *testing.T) {
	stopped(t)
	values := extremes
	if testing.Short() {
		values = []string{"-1", "9223372036854775807", "NaN"}
	}
	for _, node := range leaves(t) {
		command := strings.TrimPrefix(node.Path(), "pulsecol ")
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				if !numeric(f) {
					continue
				}
				t.Run(command+"/"+f.Name, func(t *testing.T) {
					if inapplicable[command+"/"+f.Name] {
						t.Skip("the command refuses all values")
					}
					for _, value := range values {
						args := append(base(t, command, f), "--"+f.Name+"="+value)
						var out, said bytes.Buffer
						var before, after runtime.MemStats
						runtime.ReadMemStats(&before)
						status := run(args, stdio{strings.NewReader(""), &out, &said})
						runtime.ReadMemStats(&after)
						if took := int64(after.TotalAlloc - before.TotalAlloc); took > 256<<20 {
							t.Errorf("%q took %s", args, byteSize(took))
						}
						option := strings.ReplaceAll(f.Name, "-", "_") // as the library names it
						name := command + "/" + f.Name
						accept := taken[f.Name]
						if only, ok := taken[name]; ok {
							accept = only
						}
						refused := status == exitUsage && (strings.Contains(said.String(), "--"+f.Name) || strings.Contains(said.String(), option+" "+value+": want"))
						if refused == slices.Contains(accept, value) || status == exitFailure || strings.Contains(said.String(), "internal error") {
							t.Errorf("%q: exit status %d: %s", args, status, said.String())
						}
					}
				})
			}
		}
	}
}
