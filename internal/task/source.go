package task

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pulsecol/pulsecol/internal/infile"
	"github.com/pulsecol/pulsecol/internal/jsonfile"
)

// maxSource bounds a data file, packed and unpacked. The largest that is published,
// HotpotQA's, has 47 MB.
var maxSource = infile.Limit{Bytes: 256 << 20, What: "a task's data"}

// source is a data file in memory. Its errors have the form "name:line:column: ...".
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
	text, err := infile.Read(path, maxSource)
	if err != nil {
		return source{}, err
	}
	return unpack(path, text, maxSource)
}

// unpack returns the text of a file that may be packed with gzip.
func unpack(name string, text []byte, limit infile.Limit) (source, error) {
	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			return source{}, fmt.Errorf("%s: %w", name, err)
		}
		if text, err = infile.ReadAll(z, name+", unpacked,", limit); err != nil {
			return source{}, err
		}
	}
	s := source{name, text}
	return s, s.file().CheckUTF8()
}

// errorf is an error about the byte at an offset.
func (s source) errorf(offset int, format string, args ...any) error {
	return s.file().Errorf(offset, format, args...)
}

// decode decodes the one JSON value that is all of the text from begin to end.
func (s source) decode(begin, end int, into any) error {
	return s.file().UnmarshalPart(begin, end, into)
}

func (s source) file() jsonfile.File { return jsonfile.File{Name: s.name, Text: s.text} }

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
