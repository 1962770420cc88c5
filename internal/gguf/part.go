package gguf

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pulsecol/pulsecol/internal/mapped"
	"github.com/pulsecol/pulsecol/internal/quant"
)

// The limits of a file: far above any published model, and small enough that a few
// bytes cannot ask for much memory.
const (
	maxKeys      = 1 << 16
	maxTensors   = 1 << 16
	maxKey       = 1 << 16 // bytes
	maxName      = 64      // bytes, as in the format's description
	maxDepth     = 4       // of arrays in arrays
	maxDims      = 4
	maxMetadata  = 512 << 20 // bytes
	maxAlignment = 1 << 20
	alignment    = 32 // without the key
	alignmentKey = "general.alignment"
)

// types are the ids of element types.
var types = map[uint32]quant.DType{
	0: quant.F32, 1: quant.F16, 2: quant.Q4_0, 3: quant.Q4_1, 6: quant.Q5_0, 7: quant.Q5_1, 8: quant.Q8_0,
	12: quant.Q4_K, 13: quant.Q5_K, 14: quant.Q6_K, 20: quant.IQ4_NL, 23: quant.IQ4_XS, 30: quant.BF16,
}

// others are the names of types that this package does not read.
var others = map[uint32]string{
	9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
	24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}

// part is one file.
type part struct {
	version uint32
	keys    []string
	values  map[string]value
	tensors []tensor
	mapping *mapped.File // nil if the data came with Parse
}

// openPart maps and parses a file. Errors name it.
func openPart(path string) (*part, error) {
	m, err := mapped.Open(path)
	if err != nil {
		return nil, err
	}
	var p *part
	err = mapped.Guard(func() (err error) {
		p, err = parsePart(m.Data)
		return err
	})
	if err != nil {
		_ = m.Close() // the error to report is that of the malformed file
		if errors.Is(err, mapped.ErrLost) {
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p.mapping = m
	return p, nil
}

func (p *part) close() error {
	if p.mapping == nil {
		return nil
	}
	return p.mapping.Close()
}

func parsePart(data []byte) (*part, error) {
	r := &reader{data: data}
	magic, err := r.take(4, "the magic number")
	if err != nil {
		return nil, err
	}
	if string(magic) != magicNumber {
		return nil, fmt.Errorf("begins with %q, want %q: not a GGUF file?", magic, magicNumber)
	}
	p := &part{values: map[string]value{}}
	if p.version, err = r.uint32("the version"); err != nil {
		return nil, err
	}
	switch {
	case p.version&0xFFFF == 0 && p.version != 0:
		return nil, fmt.Errorf("version is %#x: the file is big-endian, want little-endian", p.version)
	case p.version != 2 && p.version != 3:
		return nil, fmt.Errorf("version is %d, want 2 or 3", p.version)
	}
	tensors, err := r.count("tensors", maxTensors)
	if err != nil {
		return nil, err
	}
	keys, err := r.count("keys", maxKeys)
	if err != nil {
		return nil, err
	}
	for i := range keys {
		if err := p.key(r); err != nil {
			return nil, fmt.Errorf("key %d of %d: %w", i+1, keys, err)
		}
	}
	return p, p.readTensors(r, tensors)
}

func (p *part) key(r *reader) error {
	key, err := r.short("the key's name", maxKey)
	if err != nil {
		return err
	}
	if !utf8.ValidString(key) {
		return fmt.Errorf("the name %.80q is not UTF-8", key)
	}
	if _, ok := p.values[key]; ok {
		return fmt.Errorf("%.80q comes twice", key)
	}
	typ, err := r.uint32("the value's type")
	if err != nil {
		return fmt.Errorf("%.80q: %w", key, err)
	}
	from := r.at
	if err := r.value(valueType(typ), 0); err != nil {
		return fmt.Errorf("%.80q: %w", key, err)
	}
	if r.at > maxMetadata {
		return fmt.Errorf("%.80q ends at offset %d: want at most %d bytes of metadata", key, r.at, maxMetadata)
	}
	p.keys = append(p.keys, key)
	p.values[key] = value{valueType(typ), bytes.Clone(r.data[from:r.at])}
	return nil
}

// alignment returns the alignment of tensors.
func (p *part) alignment() (int, error) {
	v, ok := p.values[alignmentKey]
	if !ok {
		return alignment, nil
	}
	n, err := v.integer()
	if err != nil {
		return 0, fmt.Errorf("key %q %w", alignmentKey, err)
	}
	if n < 1 || n > maxAlignment || n&(n-1) != 0 {
		return 0, fmt.Errorf("key %q is %d, want a power of 2 from 1 to %d", alignmentKey, n, maxAlignment)
	}
	return int(n), nil
}

// readTensors reads the list of tensors and finds their data, which begins at the next
// multiple of the alignment. Tensors follow each other in the order of the list, each
// at the next multiple: so none overlaps another.
func (p *part) readTensors(r *reader, count int) error {
	align, err := p.alignment()
	if err != nil {
		return err
	}
	p.tensors = make([]tensor, 0, min(count, len(r.data)/minTensor))
	offsets := make([]uint64, 0, cap(p.tensors))
	for i := range count {
		t, offset, err := readTensor(r)
		if err != nil {
			return fmt.Errorf("tensor %d of %d: %w", i+1, count, err)
		}
		p.tensors, offsets = append(p.tensors, t), append(offsets, offset)
	}
	start := roundUp(uint64(r.at), uint64(align))
	if start > uint64(len(r.data)) {
		if count == 0 {
			return nil
		}
		return fmt.Errorf("the tensors' data begins at offset %d, beyond the file's %d bytes: file cut short?", start, len(r.data))
	}
	body, end := r.data[start:], uint64(0)
	for i := range p.tensors {
		t := &p.tensors[i]
		if offsets[i] != end {
			return fmt.Errorf("tensor %q: offset is %d, want %d, where the tensors before it end", t.name, offsets[i], end)
		}
		size, err := t.size()
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.name, err)
		}
		if left := uint64(len(body)) - end; size > left {
			return fmt.Errorf("tensor %q: shape %v of %v takes %d bytes at offset %d of the data, where only %d follow: file cut short?", t.name, t.shape, t.typ, size, end, left)
		}
		t.data = body[end:][:size:size]
		// The last tensor's padding may be missing.
		end = min(roundUp(end+size, uint64(align)), uint64(len(body)))
	}
	return nil
}

// minTensor is the least number of bytes of a tensor in the list.
const minTensor = 8 + 1 + 4 + 8 + 4 + 8

// roundUp returns the next multiple of a power of 2. n is at most the size of a file.
func roundUp(n, unit uint64) uint64 { return (n + unit - 1) &^ (unit - 1) }

func readTensor(r *reader) (t tensor, offset uint64, err error) {
	if t.name, err = r.short("the tensor's name", maxName); err != nil {
		return t, 0, err
	}
	if !utf8.ValidString(t.name) {
		return t, 0, fmt.Errorf("the name %q is not UTF-8", t.name)
	}
	offset, err = t.read(r)
	if err != nil {
		err = fmt.Errorf("%q: %w", t.name, err)
	}
	return t, offset, err
}

// read reads what follows the name.
func (t *tensor) read(r *reader) (offset uint64, err error) {
	dims, err := r.uint32("the number of dimensions")
	if err != nil {
		return 0, err
	}
	if dims < 1 || dims > maxDims {
		return 0, fmt.Errorf("the number of dimensions is %d, want 1 to %d", dims, maxDims)
	}
	for range dims {
		n, err := r.uint64("a dimension")
		if err != nil {
			return 0, err
		}
		if n < 1 || n > math.MaxInt {
			return 0, fmt.Errorf("a dimension is %d, want 1 to %d", int64(n), math.MaxInt)
		}
		t.shape = append(t.shape, int(n))
	}
	slices.Reverse(t.shape)
	id, err := r.uint32("the type")
	if err != nil {
		return 0, err
	}
	var ok bool
	if t.typ, ok = types[id]; !ok {
		name := others[id]
		if name == "" {
			name = "unknown"
		}
		return 0, fmt.Errorf("type %d (%s) is not supported: want one of %s", id, name, supported())
	}
	if cols := t.shape[len(t.shape)-1]; cols%t.typ.Block() != 0 {
		return 0, fmt.Errorf("rows have %d elements, want a multiple of the %d of a block of %v", cols, t.typ.Block(), t.typ)
	}
	return r.uint64("the offset")
}

func supported() string {
	var names []string
	for _, t := range quant.WeightTypes() {
		names = append(names, t.String())
	}
	return strings.Join(names, ", ")
}

// size is the number of bytes of the tensor.
func (t *tensor) size() (uint64, error) {
	n := uint64(t.typ.BlockBytes())
	for i, d := range t.shape {
		if i == len(t.shape)-1 {
			d /= t.typ.Block()
		}
		var err error
		if n, err = product(n, uint64(d)); err != nil {
			return 0, fmt.Errorf("shape %v of %v: %w", t.shape, t.typ, err)
		}
	}
	return n, nil
}
