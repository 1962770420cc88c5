package quant_test

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// TestBlocks: rows of blocks decode to the bits that llama.cpp's C and Python decode them
// to: rows that it has quantized, and random bits.
func TestBlocks(t *testing.T) {
	set, err := safetensors.Open(filepath.Join(golden.Dir(t, "gguf"), "blocks.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	for _, typ := range quant.WeightTypes() {
		if !typ.Quantized() {
			continue
		}
		for _, kind := range []string{"quantized", "random"} {
			name := typ.String() + "." + kind
			raw, err := set.Tensor(name + ".raw")
			if err != nil {
				t.Fatal(err)
			}
			f32, err := set.Tensor(name + ".f32")
			if err != nil {
				t.Fatal(err)
			}
			want, err := f32.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			rows, cols, size := f32.Shape[0], f32.Shape[1], raw.Shape[1]
			if typ.Bytes(cols) != size || rows*cols < 2048 {
				t.Fatalf("%s: rows of %d elements in %d bytes, want %d", name, cols, size, typ.Bytes(cols))
			}
			for i := range rows {
				row, want := raw.Data[i*size:][:size], want[i*cols:][:cols]
				got := make([]float32, cols)
				typ.Decode(got, row, 0)
				tol.SameBits(t, name, got, want)
				// From any element on, to any other.
				for _, part := range [][2]int{{1, 2}, {0, 31}, {31, 33}, {32, 64}, {40, 256}, {224, 256}, {255, 256}, {7, 7}} {
					got := make([]float32, part[1]-part[0])
					typ.Decode(got, row, part[0])
					tol.SameBits(t, name, got, want[part[0]:part[1]])
				}
			}
		}
	}
}

// TestFloats: the types without blocks.
func TestFloats(t *testing.T) {
	want := []float32{1.5, -2, 0, float32(math.Inf(1))}
	for typ, bits := range map[quant.DType][]uint32{
		quant.F32:  {0x3FC00000, 0xC0000000, 0, 0x7F800000},
		quant.BF16: {0x3FC0, 0xC000, 0, 0x7F80},
		quant.F16:  {0x3E00, 0xC000, 0, 0x7C00},
	} {
		var row []byte
		for _, b := range bits {
			row = append(row, binary.LittleEndian.AppendUint32(nil, b)[:typ.Bytes(1)]...)
		}
		for col := range want {
			got := make([]float32, len(want)-col)
			typ.Decode(got, row, col)
			tol.SameBits(t, typ.String(), got, want[col:])
		}
	}
}

func TestTypes(t *testing.T) {
	for _, typ := range quant.WeightTypes() {
		if p, ok := quant.Parse(typ.String()); p != typ || !ok || !typ.OfWeights() {
			t.Errorf("%v: parsed as %v, %v", typ, p, ok)
		}
		if typ.Bytes(512)*typ.Block() != 512*typ.BlockBytes() || typ.Quantized() != (typ.Block() > 1) {
			t.Errorf("%v: %d bytes for 512 elements, blocks of %d elements and %d bytes", typ, typ.Bytes(512), typ.Block(), typ.BlockBytes())
		}
	}
	for typ, size := range map[quant.DType]int{quant.BOOL: 1, quant.I32: 4, quant.U64: 8} { // not of weights
		if p, ok := quant.Parse(typ.String()); p != typ || !ok || typ.OfWeights() || typ.Quantized() || typ.Bytes(3) != 3*size {
			t.Errorf("%v: parsed as %v, %v, %d bytes", typ, p, ok, typ.Bytes(3))
		}
	}
	if _, ok := quant.Parse("Q2_K"); ok || quant.DType(99).OfWeights() || quant.DType(99).String() != "DType(99)" {
		t.Error("a type that is none")
	}
}
