package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func testParser(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := kong.New(&cli{}, kong.Name("pulsecol"), flagVars())
	if err != nil {
		t.Fatal(err)
	}
	return parser
}

func TestComplete(t *testing.T) {
	app := testParser(t).Model
	for line, want := range map[string]string{
		"":                                      "generate chat logits eval tokenize convert info inspect bench help version completion",
		"ver":                                   "version",
		"bench ":                                "step e2e kernel plot",
		"help bench k":                          "kernel",
		"completion ":                           "bash zsh fish",
		"generate --prompt-":                    "--prompt-file --prompt-ids",
		"generate --prompt-file a --prompt-":    "--prompt-ids",
		"generate --schedule p":                 "power",
		"generate --schedule=p":                 "power",
		"generate --schedule = p":               "power",
		"generate --schedule =":                 "uniform random power adaptive skip always dense",
		"generate --cache ":                     "none prefix dual",
		"eval --cache none,d":                   "none,dual",
		"generate --seed ":                      "",
		"generate --watch --small ":             "llada dream",
		"generate --model ":                     dirNames,
		"generate --prompt-file a":              fileNames,
		"generate -- --prompt-":                 "",
		"generate hello --meth":                 "--method",
		"eval --method full,pul":                "full,pulsecol",
		"eval --method full,pulsecol --method ": "full pulsecol sparsed window streaming block-pr column-ss",
		"eval --method full --meth":             "--method",
		"nothing --":                            "--help --version",
	} {
		var got []string
		for _, c := range complete(app, strings.Split(line, " ")) {
			got = append(got, c.word)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
	if complete(app, nil) != nil {
		t.Error("something for no word at all")
	}
}

// TestEveryFlagIsCompleted: of each command, and nothing that it does not have.
func TestEveryFlagIsCompleted(t *testing.T) {
	parser := testParser(t)
	for _, command := range parser.Model.Leaves(true) {
		path := strings.Fields(command.FullPath())[1:]
		var want, got []string
		for _, f := range slices.Concat(command.AllFlags(true)...) {
			want = append(want, "--"+f.Name)
		}
		if command.Name == "help" {
			want = []string{"--help", "--version"} // the program's
		}
		for _, c := range complete(parser.Model, append(slices.Clone(path), "--")) {
			got = append(got, c.word)
			if c.description == "" {
				t.Errorf("%s %s: no description", command.FullPath(), c.word)
			}
		}
		if !slices.Equal(got, want) || len(got) == 0 {
			t.Errorf("%s: got %q, want %q", command.FullPath(), got, want)
		}
	}
}
