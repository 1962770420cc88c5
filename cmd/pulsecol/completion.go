package main

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (completionCmd) Help() string {
	return `Prints a script for the shell to read. The script asks the program itself for commands, flags and values, so that it fits every version.

Examples:
  source <(pulsecol completion bash)                                     in ~/.bashrc
  source <(pulsecol completion zsh)                                      in ~/.zshrc, after compinit
  pulsecol completion fish > ~/.config/fish/completions/pulsecol.fish    once`
}

func (c *completionCmd) Run(std stdio) error {
	script := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Shell]
	_, err := io.WriteString(std.out, script)
	return err
}

// completeCmd is the command that the completion scripts run. It prints a line for each
// word that can replace the last one, followed by a tab and a description; or one of
// fileNames and dirNames.
type completeCmd struct {
	Words []string `arg:"" optional:"" help:"The words after the program's name, up to the cursor."`
}

func (c *completeCmd) Run(line *kong.Context, std stdio) error {
	for _, found := range complete(line.Model, c.Words) {
		if _, err := fmt.Fprintf(std.out, "%s\t%s\n", found.word, found.description); err != nil {
			return err
		}
	}
	return nil
}

type candidate struct{ word, description string }

// Words that tell the script to complete file names.
const (
	fileNames = ":file"
	dirNames  = ":dir"
)

// complete returns the candidates for the last of words, the arguments of app.
func complete(app *kong.Application, words []string) []candidate {
	if len(words) == 0 {
		return nil
	}
	node := app.Node
	var pending *kong.Flag // expects a value
	positionals := 0       // given before the last word
	helped, noFlags := false, false
	given := map[string]bool{}
	words = splitAssignments(words)
	for _, w := range words[:len(words)-1] {
		name, isFlag := strings.CutPrefix(w, "--")
		switch child := childOf(node, w); {
		case pending != nil:
			if w != "=" {
				pending = nil
			}
		case noFlags:
			positionals++
		case w == "--":
			noFlags = true
		case isFlag:
			given[name] = true
			if f := flagOf(node, name); f != nil && !f.IsBool() {
				pending = f
			}
		case !helped && node == app.Node && w == "help": // its arguments are those of the program
			helped = true
		case child != nil:
			node = child
		default:
			positionals++
		}
	}

	last := words[len(words)-1]
	switch {
	case pending != nil:
		return valuesOf(pending.Value, strings.TrimPrefix(last, "="))
	case strings.HasPrefix(last, "-") && !noFlags:
		return flagsOf(node, last, given)
	case positionals < len(node.Positional):
		return valuesOf(node.Positional[positionals], last)
	}
	var found []candidate
	for _, c := range node.Children {
		if !c.Hidden && strings.HasPrefix(c.Name, last) {
			found = append(found, candidate{c.Name, firstSentence(c.Help)})
		}
	}
	return found
}

// splitAssignments turns "--flag=value" into "--flag" and "value". Shells that split
// words at "=" make it a word of its own.
func splitAssignments(words []string) []string {
	var out []string
	for _, w := range words {
		if name, value, ok := strings.Cut(w, "="); ok && strings.HasPrefix(w, "--") {
			out = append(out, name, value)
			continue
		}
		out = append(out, w)
	}
	return out
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, c := range node.Children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func flagOf(node *kong.Node, name string) *kong.Flag {
	for _, f := range slices.Concat(node.AllFlags(true)...) {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// flagsOf returns the flags of a command that begin with a word, without those that are given
// already and cannot be repeated.
func flagsOf(node *kong.Node, word string, given map[string]bool) []candidate {
	var found []candidate
	for _, f := range slices.Concat(node.AllFlags(true)...) {
		if flag := "--" + f.Name; strings.HasPrefix(flag, word) && (f.IsCumulative() || !given[f.Name]) {
			found = append(found, candidate{flag, firstSentence(f.Help)})
		}
	}
	return found
}

// valuesOf returns the values of a flag or an argument that begin with a word. Of a
// list with commas the word is the last element.
func valuesOf(v *kong.Value, word string) []candidate {
	switch v.Tag.PlaceHolder {
	case "FILE":
		return []candidate{{word: fileNames}}
	case "DIR":
		return []candidate{{word: dirNames}}
	}
	if v.Enum == "" {
		return nil
	}
	before := ""
	if v.Target.Kind() == reflect.Slice {
		before = word[:strings.LastIndex(word, ",")+1]
	}
	var found []candidate
	for _, value := range v.EnumSlice() {
		if value = before + value; strings.HasPrefix(value, word) {
			found = append(found, candidate{word: value})
		}
	}
	return found
}

// firstSentence is the beginning of a help text, for one line of a list.
func firstSentence(help string) string {
	text, _, _ := strings.Cut(strings.ReplaceAll(help, "\n", " "), ". ")
	return strings.TrimSuffix(text, ".")
}

const bashCompletion = `# bash completion of pulsecol
_pulsecol() {
	local cur=${COMP_WORDS[COMP_CWORD]} line
	[[ $cur == "=" ]] && cur=
	COMPREPLY=()
	while IFS= read -r line; do
		case $line in
			:file*) compopt -o filenames 2>/dev/null; while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$cur") ;;
			:dir*) compopt -o filenames 2>/dev/null; while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -d -- "$cur") ;;
			*) COMPREPLY+=("${line%%$'\t'*}") ;;
		esac
	done < <("${COMP_WORDS[0]}" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _pulsecol pulsecol
`

const zshCompletion = `#compdef pulsecol
_pulsecol() {
	local -a found
	local line
	for line in "${(@f)$("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		case $line in
			:file*) _files; return ;;
			:dir*) _files -/; return ;;
			?*) found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
		esac
	done
	compset -P '--*='
	_describe 'pulsecol' found
}
compdef _pulsecol pulsecol
`

const fishCompletion = `# fish completion of pulsecol
function __pulsecol_complete
	set -l words (commandline -opc) (commandline -ct)
	set -l flag (string match -r -- '^--[^=]*=' $words[-1])
	set -l value (string replace -r -- '^--[^=]*=' '' $words[-1])
	for line in ($words[1] __complete -- $words[2..-1] 2>/dev/null)
		switch $line
			case ':file*'
				printf '%s\n' "$flag"(__fish_complete_path $value)
			case ':dir*'
				printf '%s\n' "$flag"(__fish_complete_directories $value)
			case '*'
				printf '%s\n' "$flag$line"
		end
	end
end
complete -c pulsecol -f -a '(__pulsecol_complete)'
`
