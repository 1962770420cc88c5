// Package jsonfile decodes JSON files with errors for people: file, line, column,
// the value that is wrong and what is allowed.
package jsonfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// File is a text file in memory.
type File struct {
	Name string // in errors
	Text []byte
}

// Errorf is an error about the byte at an offset: "name:line:column: ...". Lines and
// columns count from 1, columns in characters.
func (f File) Errorf(offset int, format string, args ...any) error {
	before := f.Text[:min(max(offset, 0), len(f.Text))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return fmt.Errorf("%s:%d:%d: %w", f.Name, line, column, fmt.Errorf(format, args...))
}

// CheckUTF8 reports text that is not UTF-8. Package json would put U+FFFD in the place
// of the bytes that are not.
func (f File) CheckUTF8() error {
	for at := 0; at < len(f.Text); {
		r, size := utf8.DecodeRune(f.Text[at:])
		if r == utf8.RuneError && size == 1 {
			return f.Errorf(at, "byte %#02x is not valid UTF-8", f.Text[at])
		}
		at += size
	}
	return nil
}

// Unmarshal decodes the one JSON value that is all of the text. v is as for
// json.Unmarshal.
func (f File) Unmarshal(v any) error {
	if err := f.CheckUTF8(); err != nil {
		return err
	}
	return f.UnmarshalPart(0, len(f.Text), v)
}

// UnmarshalPart decodes the one JSON value that is the text from begin to end, which
// CheckUTF8 has accepted.
func (f File) UnmarshalPart(begin, end int, v any) error {
	part := f.Text[begin:end]
	err := json.Unmarshal(part, v)
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		at, text := syntaxProblem(part, syntax)
		return f.Errorf(begin+at, "%s", text)
	case errors.As(err, &mismatch):
		at, value := valueBefore(part, int(mismatch.Offset))
		name := mismatch.Field
		if name == "" {
			name = "the value"
		}
		return f.Errorf(begin+at, "%s", mismatchText(name, value, mismatch.Type))
	}
	return f.Errorf(begin, "%w", err)
}

// Object decodes the JSON object that is all of the text into the struct that v
// points to, and returns the offset of each member's value. Unlike package json it
// tells upper from lower case in names, refuses a name that comes twice, and null for
// a field that is neither a pointer nor an interface.
func (f File) Object(v any) (map[string]int, error) {
	if err := f.CheckUTF8(); err != nil {
		return nil, err
	}
	var whole json.RawMessage
	if err := f.UnmarshalPart(0, len(f.Text), &whole); err != nil {
		return nil, err
	}
	if at, text := valueBefore(f.Text, 1); text != "an object" {
		return nil, f.Errorf(at, "%s", mismatchText("the file", text, reflect.TypeFor[struct{}]()))
	}
	fields := fieldsOf(v)
	places := map[string]int{}
	dec := json.NewDecoder(bytes.NewReader(f.Text)) // meets no errors of syntax after this
	_, _ = dec.Token()
	for dec.More() {
		token, _ := dec.Token()
		name := token.(string)
		key := int(dec.InputOffset())
		_ = dec.Decode(&whole)
		end := int(dec.InputOffset())
		begin := end - len(whole)
		if first, ok := places[name]; ok {
			line := bytes.Count(f.Text[:first], []byte("\n")) + 1
			return nil, f.Errorf(key-1, "%s comes twice, first in line %d", name, line)
		}
		places[name] = begin
		field, ok := fields[name]
		if !ok {
			continue
		}
		if kind := field.Kind(); kind != reflect.Pointer && kind != reflect.Interface && string(whole) == "null" {
			return nil, f.Errorf(begin, "%s", mismatchText(name, "null", field.Type()))
		}
		if err := f.member(name, begin, end, field); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// Strings returns the members of the object at an offset of the text, whose syntax
// has been checked. All must be strings, under names that come once. what names the
// object in errors.
func (f File) Strings(offset int, what string) (map[string]string, error) {
	dec := json.NewDecoder(bytes.NewReader(f.Text[offset:]))
	dec.UseNumber()
	if token, _ := dec.Token(); token != json.Delim('{') {
		_, got := valueBefore(f.Text[offset:], 1)
		return nil, f.Errorf(offset, "%s is %s, want an object", what, got)
	}
	members := map[string]string{}
	for dec.More() {
		at := skip(f.Text, offset+int(dec.InputOffset()))
		token, _ := dec.Token()
		name := token.(string)
		if _, ok := members[name]; ok {
			return nil, f.Errorf(at, "%s: %q comes twice", what, name)
		}
		at = skip(f.Text, offset+int(dec.InputOffset()))
		token, _ = dec.Token()
		value, ok := token.(string)
		if !ok {
			_, got := valueBefore(f.Text[at:], 1)
			return nil, f.Errorf(at, "%s: %q is %s, want a string", what, name, got)
		}
		members[name] = value
	}
	return members, nil
}

// member decodes a member's value into a field.
func (f File) member(name string, begin, end int, field reflect.Value) error {
	part := f.Text[begin:end]
	err := json.Unmarshal(part, field.Addr().Interface())
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		at, value := valueBefore(part, int(mismatch.Offset))
		if mismatch.Field != "" {
			name += "." + mismatch.Field
		}
		return f.Errorf(begin+at, "%s", mismatchText(name, value, mismatch.Type))
	}
	if err != nil {
		return f.Errorf(begin, "%s: %w", name, err)
	}
	return nil
}

// fieldsOf returns the fields of the struct that v points to, by their names in JSON.
func fieldsOf(v any) map[string]reflect.Value {
	s := reflect.ValueOf(v).Elem()
	fields := make(map[string]reflect.Value, s.NumField())
	for i := range s.NumField() {
		name, _, _ := strings.Cut(s.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = s.Field(i)
	}
	return fields
}

// mismatchText says that a value is not of a type.
func mismatchText(name, value string, want reflect.Type) string {
	if want.Kind() == reflect.Pointer {
		want = want.Elem()
	}
	allowed := "another type"
	switch kind := want.Kind(); kind {
	case reflect.Int32:
		allowed = "a whole number of at most 2147483647"
	case reflect.Int, reflect.Int64:
		allowed = "a whole number"
	case reflect.Float64, reflect.Float32:
		allowed = "a number"
		if _, err := strconv.ParseFloat(value, want.Bits()); errors.Is(err, strconv.ErrRange) {
			allowed = "a number of at most 1.8e308"
		}
	case reflect.Bool:
		allowed = "true or false"
	case reflect.String:
		allowed = "a string"
	case reflect.Struct, reflect.Map:
		allowed = "an object"
	case reflect.Slice, reflect.Array:
		allowed = "an array"
	}
	return fmt.Sprintf("%s is %s, want %s", name, value, allowed)
}

// valueBefore returns where the value begins whose first token ends at or after an
// offset, and what it is: the text of a string, number or word, else "an object" or
// "an array".
func valueBefore(text []byte, offset int) (begin int, value string) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		from := int(dec.InputOffset())
		token, err := dec.Token()
		if err != nil {
			return from, "nothing"
		}
		end := int(dec.InputOffset())
		if end < offset {
			continue
		}
		from = skip(text, from)
		switch token {
		case json.Delim('{'):
			return from, "an object"
		case json.Delim('['):
			return from, "an array"
		}
		return from, shortened(text[from:end])
	}
}

// skip returns where the value or name begins that follows offset at.
func skip(text []byte, at int) int {
	for at < len(text) && strings.IndexByte(" \t\r\n,:", text[at]) >= 0 {
		at++
	}
	return at
}

// shortened bounds the length of a value in an error.
func shortened(value []byte) string {
	const most = 60
	if len(value) <= most {
		return string(value)
	}
	end := most
	for !utf8.RuneStart(value[end]) {
		end--
	}
	return string(value[:end]) + "..."
}

// syntaxProblem returns the offset of what is no JSON in text, and what it is.
func syntaxProblem(text []byte, err *json.SyntaxError) (at int, problem string) {
	if len(bytes.TrimSpace(text)) == 0 {
		return 0, "is empty, want JSON"
	}
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		return 0, "starts with a byte order mark, want UTF-8 without one"
	}
	at = max(int(err.Offset)-1, 0)
	if strings.HasPrefix(err.Error(), "unexpected end") {
		return len(text), "ends in the middle of a value"
	}
	if at >= len(text) {
		return len(text), err.Error()
	}
	for _, word := range []string{"NaN", "-Infinity", "Infinity"} {
		// The offset is that of the letter that cannot be; a minus may precede it.
		for _, from := range []int{at - 1, at} {
			if from >= 0 && bytes.HasPrefix(text[from:], []byte(word)) {
				return from, word + " is no number in JSON"
			}
		}
	}
	if strings.HasSuffix(err.Error(), "after top-level value") {
		r, _ := utf8.DecodeRune(text[at:])
		return at, fmt.Sprintf("%q follows the end of the value, want nothing after it", r)
	}
	return at, err.Error()
}
