package chattemplate

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// items is a list whose elements are found as Python finds them. The library does not
// find the first element of a list from its end.
type items []any

// GetItem implements exec.ItemGetter.
func (l items) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if !ok {
		return exec.AsValue(nil), false
	}
	if i < 0 {
		i += len(l)
	}
	if i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.ToValue(l[i]), true
}

// listed returns lists as items, and other values as they are.
func listed(value any) any {
	if v, ok := value.(*exec.Value); ok && v.IsList() {
		value = v.Interface()
	}
	v := reflect.ValueOf(value)
	if value == nil || v.Kind() != reflect.Slice {
		return value
	}
	list := make(items, v.Len())
	for i := range list {
		list[i] = v.Index(i).Interface()
	}
	return list
}

// filterList is list().
func filterList(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	if len(params.Args)+len(params.KwArgs) > 0 {
		return exec.AsValue(errors.New("list takes no arguments"))
	}
	list := items{}
	in.Iterate(func(_, _ int, key, _ *exec.Value) bool {
		list = append(list, key.Interface())
		return true
	}, func() {})
	return exec.AsValue(list)
}

// strip returns str.strip of Python, or with one end alone lstrip or rstrip. The
// library's take ASCII white space only.
func strip(left, right bool) exec.Method[string] {
	return func(self string, _ *exec.Value, args *exec.VarArgs) (any, error) {
		if len(args.KwArgs) > 0 || len(args.Args) > 1 {
			return nil, errors.New("strip takes the characters to strip")
		}
		out := isSpace
		if len(args.Args) == 1 && !args.Args[0].IsNil() {
			set := args.Args[0].String()
			out = func(r rune) bool { return strings.ContainsRune(set, r) }
		}
		if left {
			self = strings.TrimLeftFunc(self, out)
		}
		if right {
			self = strings.TrimRightFunc(self, out)
		}
		return self, nil
	}
}

// filterTrim is trim of Jinja: str.strip.
func filterTrim(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	trimmed, err := strip(true, true)(in.String(), in, params)
	if err != nil {
		return exec.AsValue(err)
	}
	return exec.AsValue(trimmed)
}

// split is str.split of Python.
func split(self string, _ *exec.Value, args *exec.VarArgs) (any, error) {
	if len(args.KwArgs) > 0 || len(args.Args) > 2 {
		return nil, errors.New("split takes a separator and a number")
	}
	most := -1
	if len(args.Args) == 2 {
		most = args.Args[1].Integer()
	}
	var parts []string
	switch {
	case len(args.Args) == 0 || args.Args[0].IsNil():
		if most >= 0 {
			return nil, errors.New("split with a number but without a separator is not supported")
		}
		parts = strings.FieldsFunc(self, isSpace)
	case args.Args[0].String() == "":
		return nil, errors.New("split: the separator is empty")
	case most < 0:
		parts = strings.Split(self, args.Args[0].String())
	default:
		parts = strings.SplitN(self, args.Args[0].String(), most+1)
	}
	return listed(parts), nil
}

// namespace is an object with attributes that inner scopes can set.
func namespace(args *exec.VarArgs) (map[string]any, error) {
	ns := map[string]any{}
	if len(args.Args) > 0 {
		return nil, errors.New("namespace takes named arguments only")
	}
	for name, v := range args.KwArgs {
		ns[name] = listed(v.Interface())
	}
	return ns, nil
}

// rangeOf is range of Python; it spends work on each of its numbers.
func (b *budget) rangeOf(args *exec.VarArgs) (items, error) {
	bounds := [3]int{0, 0, 1}
	for i, v := range args.Args {
		if i >= len(bounds) || !v.IsInteger() {
			return nil, errors.New("range takes one to three whole numbers")
		}
		bounds[i] = v.Integer()
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	switch len(args.Args) {
	case 0:
		return nil, errors.New("range takes one to three whole numbers")
	case 1:
		start, stop = 0, start
	}
	if step == 0 {
		return nil, errors.New("range: the step is 0")
	}
	list := items{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if err := b.spend(1); err != nil {
			return nil, err
		}
		list = append(list, i)
	}
	return list, nil
}

// raiseException is what templates call when a conversation is not theirs.
func raiseException(args *exec.VarArgs) (any, error) {
	message := "without a reason"
	if len(args.Args) > 0 {
		message = args.Args[0].String()
	}
	return nil, fmt.Errorf("the template refuses the conversation: %s", message)
}

// strftimeNow is today in a format of strftime.
func strftimeNow(args *exec.VarArgs) (string, error) {
	if len(args.Args) != 1 {
		return "", errors.New("strftime_now takes a format")
	}
	return strftime(time.Now(), args.Args[0].String())
}

// layouts are the directives of strftime as layouts of package time.
var layouts = map[byte]string{'Y': "2006", 'y': "06", 'm': "01", 'B': "January", 'b': "Jan", 'd': "02", 'j': "002",
	'A': "Monday", 'a': "Mon", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM"}

func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		switch {
		case i < len(format) && format[i] == '%':
			b.WriteByte('%')
		case i < len(format) && layouts[format[i]] != "":
			b.WriteString(t.Format(layouts[format[i]]))
		default:
			return "", fmt.Errorf("strftime_now: the format %q is not supported", format)
		}
	}
	return b.String(), nil
}

// filterToJSON is tojson of transformers: json.dumps with ensure_ascii=False.
func filterToJSON(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	if len(params.Args)+len(params.KwArgs) > 0 {
		return exec.AsValue(errors.New("tojson with arguments is not supported"))
	}
	var b strings.Builder
	if err := writeJSON(&b, in); err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(b.String())
}

func writeJSON(b *strings.Builder, v *exec.Value) error {
	switch {
	case v.IsNil():
		b.WriteString("null")
	case v.IsBool():
		b.WriteString(strconv.FormatBool(v.Bool()))
	case v.IsInteger():
		b.WriteString(strconv.Itoa(v.Integer()))
	case v.IsString():
		var s strings.Builder
		e := json.NewEncoder(&s)
		e.SetEscapeHTML(false)
		if err := e.Encode(v.String()); err != nil {
			return err
		}
		b.WriteString(strings.TrimSuffix(s.String(), "\n"))
	case v.IsList():
		return writeElements(b, v, "[", "]", func(key, _ *exec.Value) error { return writeJSON(b, key) })
	case v.IsDict():
		return writeElements(b, v, "{", "}", func(key, value *exec.Value) error {
			if err := writeJSON(b, key); err != nil {
				return err
			}
			b.WriteString(": ")
			return writeJSON(b, value)
		})
	default:
		return fmt.Errorf("tojson of %s is not supported", v)
	}
	return nil
}

// writeElements writes the elements of v between two brackets.
func writeElements(b *strings.Builder, v *exec.Value, open, end string, write func(key, value *exec.Value) error) (err error) {
	b.WriteString(open)
	v.Iterate(func(i, _ int, key, value *exec.Value) bool {
		if i > 0 {
			b.WriteString(", ")
		}
		err = write(key, value)
		return err == nil
	}, func() {})
	b.WriteString(end)
	return err
}
