package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// lines are command lines that are right and take no time.
func lines(t *testing.T) [][]string {
	model := small(t)
	generation := append([]string{"generate", "--model", model, "--prompt", "a"}, quick...)
	return [][]string{
		generation, append([]string{"generate", "--small", "dream", "--prompt-ids", "5,6"}, "--max-new-tokens", "4", "--steps", "1"),
		append(slices.Clone(generation), "--sparsity", "0.5", "--json"), append([]string{"chat"}, quick...),
		append([]string{"inspect", "--random-ids", "40"}, quick...),
		append([]string{"eval", "--task", "lists@80", "--samples", "1", "--method", "full"}, quick...),
		{"logits", "--ids", "1,2,3", "--out", "logits"}, {"tokenize", "--text", "a"}, {"tokenize", "--decode"}, {"info"}, {"info", "--model", model, "--length", "64"},
		{"convert", "--type", "BF16", "--force", "--out", "gguf"},
		{"bench", "step", "--length", "64", "--steps-per-mode", "1"}, {"bench", "plot", "--kernels", "none"},
		{"help", "generate"}, {"version"}, {"completion", "bash"},
	}
}

// oddValues are values of flags: out of every range, of no type, of other flags, or
// right after all. None of them is in a range and far up in it, where work has no end.
var oddValues = []string{
	"", " ", "-", "--", "-1", "0", "-0", "1", "2", "8", "0.5", "0.999999", "1e-300", "1e308", "1e309", "-1e309", "NaN", "nan", "Inf", "-Inf", "+1", "01", "0x10", "1_000", "1e3",
	"2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615", "18446744073709551616", strings.Repeat("9", 400),
	",", ",,", "1,", ",1", "1,2,3", "1,1", "0,1", "1;2", "[1]", "{}", "null", "true", "false", "yes", "١", "é", "\u202e", "\xff\xfe", "\x01\x1b[2J", "a\nb", "a\tb", "'", `"`, `\`, "%s%d%n", "$HOME", "*", "~",
	"auto", "cpu", "cuda", "full", "pulsecol", "sparsed", "window", "streaming", "block-pr", "column-ss", "oracle", "full,full", "uniform", "random", "power", "adaptive", "skip", "always", "dense",
	"llada", "dream", "prefix", "dual", "none", "float32", "bfloat16", "int16", "int8", "f64", "origin", "entropy", "confidence_threshold", "low_confidence", "png", "svg", "all", "generated", "builtin",
	"lists", "lists@80", "lists@0", "lists@-1", "lists@99999999999999999999", "lists@80,lists@80", "ruler/vt@1", "ruler/niah_single_1@200", "gsm8k", "humaneval", "@", "@@",
	".", "..", "none/none", "/dev/null", "/proc/none", "org/name", "org/name@main", "a/../b", strings.Repeat("x", 5000), strings.Repeat("x/", 2000),
}

// flagsOf returns the flags of a command by its own help.
func flagsOf(t *testing.T, args []string) []string {
	command := args[:1]
	if args[0] == "bench" {
		command = args[:2]
	}
	var flags []string
	for _, m := range flagName.FindAllStringSubmatch(pulsecol(append(slices.Clone(command), "--help")...).succeeds(t), -1) {
		flags = append(flags, m[1])
	}
	return flags
}

var flagName = regexp.MustCompile(`(?m)^ +(?:-h, )?(--[a-z0-9-]+)`)

// TestBadLines: command lines with flags that have odd values, are unknown, do not
// belong together or come twice. An error names one of them.
func TestBadLines(t *testing.T) {
	all := lines(t)
	var flags [][]string
	for _, args := range all {
		flags = append(flags, flagsOf(t, args))
	}
	seeded(pick(40, 2500), func(seed int) {
		rng := rand.New(rand.NewPCG(uint64(seed), 300))
		k := rng.IntN(len(all))
		args, odd := badLine(rng, all[k], flags[k])
		scratch(t, func(dir string) {
			inner := filepath.Join(dir, "a", "b", "c") // values may lead upwards
			must(t, os.MkdirAll(inner, 0o777))
			c := command{args: args, dir: inner, note: fmt.Sprintf("seed %d", seed), stdin: strings.NewReader("[1,2]\n")}
			c.bad(t, append(odd, "pulsecol --help", "pulsecol help", "config.json")...)
			noneLeft(t, c, inner)
		})
	})
}

// badLine changes a command line, and returns all of it that an error may be about:
// flags, and values as they are quoted.
func badLine(rng *rand.Rand, line, flags []string) (args, odd []string) {
	args = slices.Clone(line)
	for range 1 + rng.IntN(3) {
		flag, value := "--nothing", oneOf(rng, oddValues)
		if len(flags) > 0 {
			flag = oneOf(rng, flags)
		}
		switch rng.IntN(12) {
		case 0: // unknown
			flag += oneOf(rng, []string{"x", "-", "\xff", "é"})
		case 1: // as an argument
			args = append(args, value)
			continue
		case 2: // without a value
			args = append(args, flag)
			continue
		case 3: // not there
			if i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--") }); i >= 0 {
				odd = append(odd, args[i])
				args = slices.Delete(args, i, min(i+2, len(args)))
			}
			continue
		}
		if rng.IntN(2) == 0 {
			args = append(args, flag, value)
		} else {
			args = append(args, flag+"="+value)
		}
	}
	for _, a := range args {
		flag, value, _ := strings.Cut(a, "=")
		if odd = append(odd, flag); value != "" {
			odd = append(odd, value)
		}
	}
	return args, slices.DeleteFunc(odd, func(s string) bool { return len(s) < 2 && s != "-" })
}
