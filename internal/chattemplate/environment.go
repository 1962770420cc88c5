package chattemplate

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/nikolalohinski/gonja/v2/builtins"
	statements "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// What a template may use, next to the functions of functions.go. Left out is what
// reads other templates, what may run for ever (macros can call themselves), and what
// makes a long text of a number (center, ljust, format and such).
var (
	allowedStatements = []string{"if", "for", "set", "break", "continue", "raw"}
	allowedFilters    = []string{"abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "int",
		"items", "join", "last", "length", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse",
		"round", "safe", "select", "selectattr", "sort", "string", "sum", "title", "unique", "upper"}
	allowedMethods = []string{"capitalize", "endswith", "find", "isalpha", "isdigit", "isspace", "join", "lower",
		"removeprefix", "removesuffix", "replace", "rfind", "startswith", "title", "upper"}
	allowedDictMethods = []string{"get", "items", "keys", "values"}
)

const (
	maxWork   = 50_000   // statements executed and loop items
	maxOutput = 64 << 20 // bytes
	maxError  = 200      // characters of an error of the library
)

// execute renders the messages as text.
func (t *Template) execute(messages []Message) (text string, err error) {
	defer func() {
		if r := recover(); r != nil { // of the library, such as a division by zero
			err = fmt.Errorf("the template cannot be rendered: %v", r)
		}
	}()
	if size := int64(len(t.Source)); size > Limit.Bytes {
		return "", fmt.Errorf("the template has %d bytes, want at most %d", size, Limit.Bytes)
	}
	cfg := config.New()
	cfg.TrimBlocks, cfg.LeftStripBlocks = true, true // as in transformers
	if err := t.check(cfg); err != nil {
		return "", err
	}
	const name = "/template"
	loader, err := loaders.NewMemoryLoader(map[string]string{name: t.Source})
	if err != nil {
		return "", err
	}
	work := &budget{left: maxWork}
	compiled, err := exec.NewTemplate(name, cfg, loader, environment(work))
	if err != nil {
		return "", rootCause(err)
	}
	var list items
	for _, m := range messages {
		list = append(list, map[string]any{"role": m.Role, "content": m.Content})
	}
	variables := map[string]any{"messages": list, "add_generation_prompt": true}
	for name, content := range t.Tokens {
		variables[name] = content
	}
	out := &limitedBuffer{}
	if err := compiled.Execute(out, exec.NewContext(variables)); err != nil {
		return "", rootCause(err)
	}
	return out.String(), nil
}

// check refuses what the library would not render as Jinja does.
func (t *Template) check(cfg *config.Config) error {
	stream := tokens.LexAll(t.Source, cfg)
	var before [3]*tokens.Token // the last tokens, the newest first
	for !stream.End() {
		at := stream.Next()
		if at == nil {
			break
		}
		switch {
		case at.Type == tokens.Error:
			return fmt.Errorf("line %d: %s", at.Line, at.Val)
		case at.Type == tokens.Multiply || at.Type == tokens.Power:
			return fmt.Errorf("line %d: the operator %s is not supported", at.Line, at.Val)
		case at.Type == tokens.Name && t.missing(at.Val) && (before[0] == nil || before[0].Type != tokens.Dot):
			return fmt.Errorf("line %d: the template uses %s, which %s does not give", at.Line, at.Val, configName)
		case at.Type == tokens.Integer && is(before[0], tokens.Subtraction) && is(before[1], tokens.LeftBracket) &&
			!is(before[2], tokens.Name) && !is(before[2], tokens.RightParenthesis):
			return fmt.Errorf("line %d: a negative index of something without a name is not supported", at.Line)
		}
		before = [3]*tokens.Token{at, before[0], before[1]}
	}
	return nil
}

func is(t *tokens.Token, kind tokens.Type) bool { return t != nil && t.Type == kind }

// missing reports whether name is a special token that is not known.
func (t *Template) missing(name string) bool {
	_, known := t.Tokens[name]
	return !known && (name == "bos_token" || name == "eos_token")
}

// environment returns what exists for a template that may do work.
func environment(work *budget) *exec.Environment {
	filters := map[string]exec.FilterFunction{"list": filterList, "tojson": filterToJSON, "trim": filterTrim}
	for _, name := range allowedFilters {
		filters[name], _ = builtins.Filters.Get(name)
	}
	strs := map[string]exec.Method[string]{"split": split, "strip": strip(true, true), "lstrip": strip(true, false), "rstrip": strip(false, true)}
	for _, name := range allowedMethods {
		strs[name], _ = builtins.Methods.Str.Get(name)
	}
	dicts := map[string]exec.Method[map[string]any]{}
	for _, name := range allowedDictMethods {
		dicts[name], _ = builtins.Methods.Dict.Get(name)
	}
	parsers := map[string]parser.ControlStructureParser{}
	for _, name := range allowedStatements {
		parse, _ := builtins.ControlStructures.Get(name)
		parsers[name] = work.counted(name, parse)
	}
	return &exec.Environment{
		Context: exec.NewContext(map[string]any{
			"namespace": namespace, "range": work.rangeOf, "raise_exception": raiseException, "strftime_now": strftimeNow,
		}),
		Filters:           exec.NewFilterSet(filters),
		Tests:             builtins.Tests,
		ControlStructures: exec.NewControlStructureSet(parsers),
		Methods: exec.Methods{
			Str: exec.NewMethodSet(strs), Dict: exec.NewMethodSet(dicts),
			Bool: exec.NewMethodSet[bool](nil), Int: exec.NewMethodSet[int](nil),
			Float: exec.NewMethodSet[float64](nil), List: exec.NewMethodSet[[]any](nil),
		},
	}
}

// budget is the work that a template may still do.
type budget struct{ left int }

func (b *budget) spend(n int) error {
	if n > b.left {
		return errors.New("the template does too much: its loops are too long")
	}
	b.left -= n
	return nil
}

// counted returns a parser of a statement that spends 1 whenever it is executed, and
// 1 for each item if it is a loop.
func (b *budget) counted(name string, parse parser.ControlStructureParser) parser.ControlStructureParser {
	return func(p, args *parser.Parser) (nodes.ControlStructure, error) {
		variable := ""
		if at := args.Current(); name == "set" && at != nil {
			variable = at.Val
		}
		parsed, err := parse(p, args)
		if err != nil {
			return nil, err
		}
		if loop, ok := parsed.(*statements.ForControlStructure); ok && loop.Recursive { // perhaps without end
			return nil, errors.New("recursive loops are not supported")
		}
		run, ok := parsed.(exec.ControlStructure)
		if !ok { // it does nothing when it is executed
			return parsed, nil
		}
		return &countedStatement{run, b, variable}, nil
	}
}

type countedStatement struct {
	exec.ControlStructure
	work     *budget
	variable string // that it sets
}

func (s *countedStatement) Execute(r *exec.Renderer, tag *nodes.ControlStructureBlock) error {
	n := 1
	if loop, ok := s.ControlStructure.(*statements.ForControlStructure); ok {
		n += r.Eval(loop.ObjectEvaluator).Len()
	}
	if err := s.work.spend(n); err != nil {
		return err
	}
	if err := s.ControlStructure.Execute(r, tag); err != nil {
		return err
	}
	if value, ok := r.Environment.Context.Get(s.variable); s.variable != "" && ok {
		r.Environment.Context.Set(s.variable, listed(value))
	}
	return nil
}

// limitedBuffer is a bytes.Buffer of at most maxOutput bytes.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if len(p) > maxOutput-b.Len() {
		return 0, fmt.Errorf("the template writes more than %d bytes", maxOutput)
	}
	return b.Buffer.Write(p)
}

func (b *limitedBuffer) WriteString(s string) (int, error) { return b.Write([]byte(s)) }

// rootCause returns the innermost error: those around it repeat the template.
func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if v, ok := err.(*exec.Value); ok {
			inner, _ = v.Interface().(error)
		}
		if inner == nil {
			text := []rune(strings.TrimSpace(err.Error()))
			return errors.New(string(text[:min(len(text), maxError)]))
		}
		err = inner
	}
}
