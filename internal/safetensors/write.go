package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pulsecol/pulsecol/internal/outfile"
)

// Write writes a file of tensors and metadata, which may both be empty. As in the
// reference implementation, tensors are ordered by dtype, the widest first, and
// then by name, and the header is padded to 8 bytes, so that every tensor is
// aligned to its element size. Equal input, in any order, gives equal bytes.
//
// Write refuses a name that is repeated, "__metadata__" or not UTF-8, an unknown dtype, and
// Data that does not fit Shape; it then writes nothing.
func Write(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	if err := write(w, tensors, metadata); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	return nil
}

func write(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	tensors = slices.Clone(tensors)
	slices.SortFunc(tensors, func(a, b Tensor) int {
		return cmp.Or(
			cmp.Compare(slices.Index(dtypes, b.DType), slices.Index(dtypes, a.DType)),
			strings.Compare(a.Name, b.Name))
	})
	head, err := encodeHeader(tensors, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	for _, t := range tensors {
		if _, err := w.Write(t.Data); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	return nil
}

// encodeHeader returns everything that precedes the data of tensors.
func encodeHeader(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, lengthSize)) // filled in below
	b.WriteByte('{')
	if len(metadata) > 0 {
		for k, v := range metadata {
			if !utf8.ValidString(k) || !utf8.ValidString(v) {
				return nil, fmt.Errorf("metadata %q: %q is not valid UTF-8", k, v)
			}
		}
		if err := encodeMember(&b, metadataKey, metadata); err != nil {
			return nil, err
		}
	}
	seen := make(map[string]bool, len(tensors))
	end := uint64(0)
	for _, t := range tensors {
		switch {
		case t.Name == metadataKey:
			return nil, fmt.Errorf("tensor name %q is reserved", t.Name)
		case !utf8.ValidString(t.Name):
			return nil, fmt.Errorf("tensor name %q is not valid UTF-8", t.Name)
		case seen[t.Name]:
			return nil, fmt.Errorf("tensor name %q comes twice", t.Name)
		}
		seen[t.Name] = true
		if err := t.check(); err != nil {
			return nil, err
		}
		begin := end
		end += uint64(len(t.Data))
		err := encodeMember(&b, t.Name, struct {
			DType   string    `json:"dtype"`
			Shape   []int     `json:"shape"`
			Offsets [2]uint64 `json:"data_offsets"`
		}{t.DType.String(), append([]int{}, t.Shape...), [2]uint64{begin, end}}) // a nil shape would be null
		if err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	n := b.Len() - lengthSize
	if n > maxHeader {
		return nil, fmt.Errorf("header of %d tensors takes %d bytes, over the limit of %d", len(tensors), n, maxHeader)
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(n))
	return b.Bytes(), nil
}

// encodeMember appends "name": value to the object in b.
func encodeMember(b *bytes.Buffer, name string, value any) error {
	if b.Len() > lengthSize+1 {
		b.WriteByte(',')
	}
	key, err := json.Marshal(name)
	if err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	b.Write(key)
	b.WriteByte(':')
	b.Write(text)
	return nil
}

// WriteFile is Write to a file, which appears at path complete or not at all: it is
// written to path's directory and renamed, replacing an existing file. A symbolic
// link at path is followed; a device, pipe, directory or read-only file is refused.
func WriteFile(path string, tensors []Tensor, metadata map[string]string) error {
	err := outfile.Write(path, func(w io.Writer) error { return write(w, tensors, metadata) })
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	return nil
}
