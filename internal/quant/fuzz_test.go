package quant_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/pulsecol/pulsecol/internal/quant"
)

// FuzzEncode: 256 elements of any bits, the given ones over and over, encode to blocks
// within the bound, equal every time, or are an error that names one of them.
func FuzzEncode(f *testing.F) {
	for _, row := range rows() {
		var data []byte
		for _, e := range row {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(e))
		}
		f.Add(data)
	}
	f.Add([]byte{0, 0, 0xC0, 0x7F})
	f.Add([]byte{0xFF, 0xFF, 0x7F, 0x7F, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 4 {
			return
		}
		row := make([]float32, 256)
		for i := range row {
			row[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[i%(len(data)/4)*4:]))
		}
		for _, typ := range quant.WeightTypes() {
			block := make([]byte, typ.Bytes(len(row)))
			err := typ.Encode(block, row)
			if err != nil {
				e, ok := err.(*quant.RangeError)
				if !ok || math.Float32bits(row[e.Element]) != math.Float32bits(e.Value) {
					t.Fatalf("%v: %v", typ, err)
				}
				if finite := e.Value-e.Value == 0; finite && math.Abs(float64(e.Value)) < 65504 {
					t.Fatalf("%v refuses %g", typ, e.Value)
				}
				continue
			}
			got := make([]float32, len(row))
			typ.Decode(got, block, 0)
			checkBound(t, typ, "fuzz", row, got)
			second := bytes.Repeat([]byte{0xA5}, len(block))
			if err := typ.Encode(second, row); err != nil || !bytes.Equal(block, second) {
				t.Fatalf("%v: a second encoding differs", typ)
			}
		}
	})
}
