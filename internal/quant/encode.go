package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol/internal/bf16"
)

// A RangeError is an element that a type cannot hold.
type RangeError struct {
	Type    DType
	Element int // of the elements that were to be encoded
	Value   float32
}

func (e *RangeError) Error() string {
	if e.Value != e.Value || math.IsInf(float64(e.Value), 0) {
		return fmt.Sprintf("element %d is %v, want a finite number", e.Element, e.Value)
	}
	return fmt.Sprintf("element %d is %g, which %v cannot hold", e.Element, e.Value, e.Type)
}

// Encode writes elements, whole blocks of them, to dst, which takes Bytes(len(src)) bytes.
// Floats are rounded to the nearest. Blocks of quantized types get codes and scales for
// which the sum of the squared errors is small: no search for the smallest is complete.
// Equal elements give equal bytes.
//
// The type is one of weights. An element that is no finite number, or too large for the
// type, is a *RangeError.
func (t DType) Encode(dst []byte, src []float32) error {
	for i, e := range src {
		if e-e != 0 { // no finite number
			return &RangeError{t, i, e}
		}
	}
	switch t {
	case F32:
		for i, e := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(e))
		}
		return nil
	case BF16:
		bf16.Encode(dst, src)
	case F16:
		bf16.EncodeHalf(dst, src)
	default:
		return t.encodeBlocks(dst, src)
	}
	return t.checkDecoded(dst, src, 0)
}

func (t DType) encodeBlocks(dst []byte, src []float32) error {
	f := &formats[t]
	var wide [maxBlock]float64
	for b := range len(src) / f.block {
		block, elements := dst[b*f.bytes:][:f.bytes], src[b*f.block:][:f.block]
		for i, e := range elements {
			wide[i] = float64(e)
		}
		f.encode(block, wide[:f.block])
		if err := t.checkDecoded(block, elements, b*f.block); err != nil {
			return err
		}
	}
	return nil
}

// checkDecoded reports the largest element if something decodes to no finite number: where
// a scale, a minimum or an element is beyond its 16 bits. at is the number of elements
// before.
func (t DType) checkDecoded(data []byte, src []float32, at int) error {
	var part [maxBlock]float32
	for from := 0; from < len(src); from += len(part) {
		got := part[:min(len(part), len(src)-from)]
		t.Decode(got, data, from)
		for _, e := range got {
			if e-e == 0 {
				continue
			}
			largest := 0
			for i, e := range src {
				if math.Abs(float64(e)) > math.Abs(float64(src[largest])) {
					largest = i
				}
			}
			return &RangeError{t, at + largest, src[largest]}
		}
	}
	return nil
}

// The shares of the distance from 0 to the largest element that searches bring to an end
// of a type's values. With fewer bits it pays to cut off more of the largest elements.
var (
	spread4    = shares(0.76, 1.2, 0.04)
	spread5    = shares(0.88, 1.12, 0.02)
	spread6    = shares(0.94, 1.06, 0.01)
	lineSpread = shares(0.92, 1.24, 0.02)
)

func shares(from, to, step float64) (list []float64) {
	for i := range int((to-from)/step + 1.5) {
		list = append(list, from+float64(i)*step)
	}
	return list
}
