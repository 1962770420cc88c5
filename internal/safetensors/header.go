package safetensors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pulsecol/pulsecol/internal/quant"
)

const (
	lengthSize  = 8              // the header length, a uint64
	maxHeader   = 100 << 20      // the largest header; the reference implementation's limit is 100 MB
	metadataKey = "__metadata__" // the one header member that is no tensor
)

// header is a decoded header. Its entries are not yet checked against the file's size.
type header struct {
	entries  []entry
	metadata map[string]string
}

// entry is a tensor's place in the bytes that follow the header.
type entry struct {
	Info
	begin, end int
}

func parseHeader(text []byte) (header, error) {
	if len(text) == 0 || text[0] != '{' {
		return header{}, errors.New("does not start with a JSON object")
	}
	// encoding/json would replace bad bytes silently, and so change names.
	if !utf8.Valid(text) {
		return header{}, errors.New("is not valid UTF-8")
	}
	var h header
	err := decodeObject(text, func(name string, dec *json.Decoder) error {
		if name == metadataKey {
			var err error
			if h.metadata, err = decodeStrings(dec); err != nil {
				return fmt.Errorf("%s: %w", metadataKey, err)
			}
			return nil
		}
		e, err := decodeEntry(name, dec)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		h.entries = append(h.entries, e)
		return nil
	})
	return h, err
}

func decodeEntry(name string, dec *json.Decoder) (entry, error) {
	var shape, offsets []natural
	var dtype string
	e := entry{Info: Info{Name: name}}
	err := eachMember(dec, func(field string) error {
		switch field {
		case "dtype":
			return decodeField(dec, field, &dtype)
		case "shape":
			return decodeField(dec, field, &shape)
		case "data_offsets":
			return decodeField(dec, field, &offsets)
		}
		return skip(dec)
	})
	if err != nil {
		return entry{}, err
	}
	if shape == nil {
		return entry{}, errors.New("shape is missing")
	}
	if len(offsets) != 2 {
		return entry{}, fmt.Errorf("data_offsets has %d numbers, want 2", len(offsets))
	}
	var ok bool
	if e.DType, ok = quant.Parse(dtype); !ok || !slices.Contains(dtypes, e.DType) {
		return entry{}, fmt.Errorf("dtype %q is none of %v", dtype, dtypes)
	}
	e.begin, e.end = int(offsets[0]), int(offsets[1])
	e.Shape = make([]int, len(shape))
	for i, d := range shape {
		e.Shape[i] = int(d)
	}
	return e, nil
}

// checkLayout reports an entry whose number of bytes does not fit its shape and dtype, and
// entries that together do not fill the size bytes after the header exactly.
func (h header) checkLayout(size int) error {
	entries := slices.Clone(h.entries)
	slices.SortFunc(entries, func(a, b entry) int {
		// Ends are compared too, so that an empty tensor precedes its neighbour.
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	at := 0
	for _, e := range entries {
		need, err := e.size()
		if err != nil {
			return err
		}
		switch {
		case e.end-e.begin != need:
			return fmt.Errorf("tensor %q: shape %v of %s needs %d bytes, offsets [%d %d] give %d",
				e.Name, e.Shape, e.DType, need, e.begin, e.end, e.end-e.begin)
		case e.begin > at:
			return fmt.Errorf("tensor %q: no tensor covers the %d bytes before its offset %d", e.Name, e.begin-at, e.begin)
		case e.begin < at:
			return fmt.Errorf("tensor %q: offset %d overlaps the tensor that ends at %d", e.Name, e.begin, at)
		case e.end > size:
			return fmt.Errorf("tensor %q: offset %d is past the %d bytes after the header: file cut short?", e.Name, e.end, size)
		}
		at = e.end
	}
	if at != size {
		return fmt.Errorf("%d bytes follow the last tensor", size-at)
	}
	return nil
}

// natural is a JSON whole number that fits an int and is not negative.
// encoding/json alone would also take null, as 0.
type natural int

func (n *natural) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseUint(string(text), 10, strconv.IntSize-1)
	if err != nil {
		return fmt.Errorf("%s is not a whole number from 0 to %d", text, math.MaxInt)
	}
	*n = natural(v)
	return nil
}

// decodeObject calls member for each member of the JSON object that text
// consists of; member must decode the value.
func decodeObject(text []byte, member func(name string, dec *json.Decoder) error) error {
	// The decoder below stops at the closing brace; this sees the whole text.
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	return eachMember(dec, func(name string) error { return member(name, dec) })
}

// eachMember calls member for each member of the next object in dec; member must
// decode the value. Unlike encoding/json, it refuses a repeated name and is case-sensitive.
func eachMember(dec *json.Decoder, member func(name string) error) error {
	open, err := dec.Token()
	if err != nil {
		return err
	}
	if open != json.Delim('{') {
		return fmt.Errorf("got %v, want an object", open)
	}
	seen := make(map[string]bool)
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		name, ok := token.(string)
		if !ok {
			return fmt.Errorf("got %v, want a name", token)
		}
		if seen[name] {
			return fmt.Errorf("%q comes twice", name)
		}
		seen[name] = true
		if err := member(name); err != nil {
			return err
		}
	}
	_, err = dec.Token() // the closing brace
	return err
}

// decodeStrings decodes an object whose values are strings.
func decodeStrings(dec *json.Decoder) (map[string]string, error) {
	m := make(map[string]string)
	err := eachMember(dec, func(name string) error {
		var s *string // null would leave a string empty
		if err := decodeField(dec, strconv.Quote(name), &s); err != nil {
			return err
		}
		if s == nil {
			return fmt.Errorf("%q is null, want a string", name)
		}
		m[name] = *s
		return nil
	})
	return m, err
}

func decodeField(dec *json.Decoder, field string, v any) error {
	err := dec.Decode(v)
	var mismatch *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &mismatch):
		kind, _, _ := strings.Cut(mismatch.Value, " ") // of "number 1.5"
		want := "string"
		if _, ok := v.(*[]natural); ok {
			want = "array"
		}
		return fmt.Errorf("%s: JSON %s, want %s", field, kind, want)
	}
	return fmt.Errorf("%s: %w", field, err)
}

func skip(dec *json.Decoder) error {
	return dec.Decode(new(json.RawMessage))
}
