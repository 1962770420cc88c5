package task

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxSource bounds a data file, unpacked. The largest that is published, HotpotQA's, has 47 MB.
const maxSource = 256 << 20

// source is a data file in memory. What is wrong with it is reported as "name:line:column: ...".
type source struct {
	name string
	text []byte
}

// find returns the path of a task's data: data itself if it is a file, else the first of names
// that is in the folder data.
func find(data string, names ...string) (string, error) {
	want := strings.Join(names, " or ")
	if data == "" {
		return "", fmt.Errorf("needs data: want a folder with %s, or the file itself", want)
	}
	info, err := os.Stat(data)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return data, nil
	}
	for _, name := range names {
		path := filepath.Join(data, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("no %s in %s", want, data)
}

// openSource reads a text file, which may be packed with gzip.
func openSource(path string) (source, error) {
	f, err := os.Open(path)
	if err != nil {
		return source{}, err
	}
	defer f.Close()
	return readSource(path, f, maxSource)
}

func readSource(name string, r io.Reader, limit int64) (source, error) {
	packed, err := readAtMost(r, limit)
	if err != nil {
		return source{}, fmt.Errorf("%s: %w", name, err)
	}
	s := source{name, packed}
	if bytes.HasPrefix(packed, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err == nil {
			s.text, err = readAtMost(z, limit)
		}
		if err != nil {
			return source{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	// encoding/json would replace bad bytes silently, and so change questions.
	for at := 0; at < len(s.text); {
		r, size := utf8.DecodeRune(s.text[at:])
		if r == utf8.RuneError && size == 1 {
			return source{}, s.errorf(at, "byte %#02x is not valid UTF-8", s.text[at])
		}
		at += size
	}
	return s, nil
}

func readAtMost(r io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	return text, err
}

// errorf is an error about the byte at an offset. Columns count characters, from 1.
func (s source) errorf(offset int, format string, args ...any) error {
	before := s.text[:offset]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return fmt.Errorf("%s:%d:%d: %w", s.name, line, column, fmt.Errorf(format, args...))
}

// decode decodes the one JSON value that is all of the text from begin to end.
func (s source) decode(begin, end int, into any) error {
	err := json.Unmarshal(s.text[begin:end], into)
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	offset := int64(1) // of the byte behind the wrong one
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &mismatch):
		offset = mismatch.Offset
		err = mismatched(mismatch)
	}
	return s.errorf(begin+min(max(int(offset)-1, 0), end-begin), "%w", err)
}

func mismatched(e *json.UnmarshalTypeError) error {
	name := "it"
	if e.Field != "" {
		name = strconv.Quote(e.Field)
	}
	want := e.Type.Kind().String()
	switch e.Type.Kind() {
	case reflect.Struct:
		want = "object"
	case reflect.Slice:
		want = "array"
	}
	return fmt.Errorf("%s is a JSON %s, want %s", name, e.Value, want)
}

// lines calls each with the begin and end of every line that is not blank.
func (s source) lines(each func(begin, end int) error) error {
	begin := 0
	for line := range bytes.Lines(s.text) {
		if len(bytes.TrimSpace(line)) > 0 {
			if err := each(begin, begin+len(bytes.TrimRight(line, "\r\n"))); err != nil {
				return err
			}
		}
		begin += len(line)
	}
	return nil
}

// elements calls each with the begin and end of every element of the array that is the text, or
// that is the given member of the object that is the text.
func (s source) elements(member string, each func(begin, end int) error) error {
	var whole json.RawMessage
	if err := s.decode(0, len(s.text), &whole); err != nil {
		return err
	}
	walk := json.NewDecoder(bytes.NewReader(s.text)) // meets no errors of syntax after this
	open, _ := walk.Token()
	if member != "" && open == json.Delim('{') {
		for walk.More() {
			if name, _ := walk.Token(); name == member {
				break
			}
			_ = walk.Decode(&whole)
		}
		open, _ = walk.Token()
	}
	if open != json.Delim('[') {
		if member == "" {
			return s.errorf(0, "want a JSON array")
		}
		return s.errorf(0, "want a JSON object with an array %q", member)
	}
	for walk.More() {
		_ = walk.Decode(&whole)
		end := int(walk.InputOffset())
		if err := each(end-len(whole), end); err != nil {
			return err
		}
	}
	return nil
}
