package bf16

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
)

// A format is one of the two 16-bit formats: its functions, and its fields from
// which the tests work out every value anew.
type format struct {
	name     string
	expBits  int
	fracBits int
	widen    func(uint16) float32
	narrow   func(float32) uint16
	decode   func([]float32, []byte)
	encode   func([]byte, []float32)
}

var formats = []format{
	{"bf16", 8, 7, ToFloat32, FromFloat32, Decode, Encode},
	{"half", 5, 10, HalfToFloat32, HalfFromFloat32, DecodeHalf, EncodeHalf},
}

// value is the definition: (-1)^sign * 2^(exp-bias) * (1 + frac/2^fracBits), without
// the one and with the exponent of 1 where exp is 0.
func (f format) value(b uint16) float64 {
	exp := int(b>>f.fracBits) & (1<<f.expBits - 1)
	frac := float64(b & (1<<f.fracBits - 1))
	bias := 1<<(f.expBits-1) - 1
	var v float64
	switch {
	case exp == 0:
		v = math.Ldexp(frac, 1-bias-f.fracBits)
	case exp < 1<<f.expBits-1:
		v = math.Ldexp(frac+float64(int(1)<<f.fracBits), exp-bias-f.fracBits)
	case frac == 0:
		v = math.Inf(1)
	default:
		return math.NaN()
	}
	if b>>15 == 1 {
		v = -v
	}
	return v
}

func (f format) inf() uint16 { return (1<<f.expBits - 1) << f.fracBits }

func eachFormat(t *testing.T, test func(t *testing.T, f format)) {
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) { test(t, f) })
	}
}

func TestWiden(t *testing.T) {
	eachFormat(t, func(t *testing.T, f format) {
		for i := range 1 << 16 {
			b := uint16(i)
			got, want := f.widen(b), f.value(b)
			if math.IsNaN(want) {
				if got == got || math.Signbit(float64(got)) != (b>>15 == 1) {
					t.Errorf("%#04x: got %v, want a NaN with its sign", b, got)
				}
				continue
			}
			if float64(got) != want || math.Signbit(float64(got)) != (b>>15 == 1) {
				t.Errorf("%#04x: got %v, want %v", b, got, want)
			}
		}
	})
}

func TestNarrowUndoesWiden(t *testing.T) {
	eachFormat(t, func(t *testing.T, f format) {
		for i := range 1 << 16 {
			b := uint16(i)
			want := b
			if math.IsNaN(f.value(b)) {
				want |= 1 << (f.fracBits - 1) // quiet
			}
			if got := f.narrow(f.widen(b)); got != want {
				t.Errorf("%#04x: got %#04x, want %#04x", b, got, want)
			}
		}
	})
}

// Around every boundary between two neighbours the float32 below it, it itself and
// the one above it must go to the lower, the even and the upper one.
func TestNarrowRounds(t *testing.T) {
	eachFormat(t, func(t *testing.T, f format) {
		for low := range f.inf() {
			high := low + 1
			next := f.value(high)
			if high == f.inf() {
				// IEEE 754: rounding to infinity begins where the next
				// value would if the exponent had no end.
				next = 2*f.value(low) - f.value(low-1)
			}
			mid := (f.value(low) + next) / 2 // exact: one bit more than the format has
			if float64(float32(mid)) != mid {
				// The smallest subnormals of bf16 are too close for float32.
				if f.name == "half" || low >= 1<<7 {
					t.Fatalf("%#04x: float32 does not hold the midpoint %g", low, mid)
				}
				continue
			}
			even := low
			if low%2 == 1 {
				even = high
			}
			m := float32(mid)
			below, above := math.Nextafter32(m, 0), math.Nextafter32(m, float32(math.Inf(1)))
			for _, c := range []struct {
				in   float32
				want uint16
			}{{below, low}, {m, even}, {above, high}} {
				if got := f.narrow(c.in); got != c.want {
					t.Errorf("%g between %#04x and %#04x: got %#04x, want %#04x", c.in, low, high, got, c.want)
				}
				if got, want := f.narrow(-c.in), c.want|0x8000; got != want {
					t.Errorf("%g: got %#04x, want %#04x", -c.in, got, want)
				}
			}
		}
	})
}

func TestNarrowExtremes(t *testing.T) {
	eachFormat(t, func(t *testing.T, f format) {
		for _, c := range []struct {
			in   float32
			want uint16
		}{
			{0, 0},
			{float32(math.Copysign(0, -1)), 0x8000},
			{math.SmallestNonzeroFloat32, 0},
			{math.MaxFloat32, f.inf()},
			{float32(math.Inf(1)), f.inf()},
			{float32(math.Inf(-1)), f.inf() | 0x8000},
		} {
			if got := f.narrow(c.in); got != c.want {
				t.Errorf("%g: got %#04x, want %#04x", c.in, got, c.want)
			}
		}
	})
}

// A NaN must not become an infinity, whichever bits of its payload are set.
func TestNarrowNaN(t *testing.T) {
	eachFormat(t, func(t *testing.T, f format) {
		for bit := range 23 {
			for _, sign := range []uint32{0, 1 << 31} {
				in := math.Float32frombits(sign | 0x7f800000 | 1<<bit)
				got := f.narrow(in)
				if !math.IsNaN(f.value(got)) || uint32(got>>15) != sign>>31 {
					t.Errorf("NaN %#08x: got %#04x", math.Float32bits(in), got)
				}
			}
		}
	})
}

func TestDecodeEncode(t *testing.T) {
	eachFormat(t, func(t *testing.T, f format) {
		for _, n := range []int{0, 1, 2, 3, 7, 8, 9, 1000} {
			// One byte into the buffer: the data of a tensor need not be aligned.
			src := make([]byte, 2*n+1)[1:]
			want := make([]float32, n)
			for i := range n {
				b := uint16(i * 29) // finite in both formats
				src[2*i], src[2*i+1] = byte(b), byte(b>>8)
				want[i] = f.widen(b)
			}
			got := make([]float32, n)
			f.decode(got, src)
			if !slices.Equal(got, want) {
				t.Errorf("decode %d values: got %v, want %v", n, got, want)
			}
			back := make([]byte, 2*n+1)[1:]
			f.encode(back, got)
			if !bytes.Equal(back, src) {
				t.Errorf("encode %d values: got %x, want %x", n, back, src)
			}
		}
	})
}

func TestLengthMismatchPanics(t *testing.T) {
	eachFormat(t, func(t *testing.T, f format) {
		for _, bytes := range []int{5, 7, 3, 12} {
			for name, call := range map[string]func(){
				"decode": func() { f.decode(make([]float32, 3), make([]byte, bytes)) },
				"encode": func() { f.encode(make([]byte, bytes), make([]float32, 3)) },
			} {
				func() {
					want := fmt.Sprintf("bf16: %d bytes for 3 values of 2 bytes", bytes)
					defer func() {
						if got := recover(); got != want {
							t.Errorf("%s: panic %v, want %q", name, got, want)
						}
					}()
					call()
				}()
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, f := range formats {
		b.Run(f.name, func(b *testing.B) {
			src := make([]byte, 1<<21)
			for i := range src {
				src[i] = byte(i * 7)
			}
			dst := make([]float32, len(src)/2)
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				f.decode(dst, src)
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, f := range formats {
		b.Run(f.name, func(b *testing.B) {
			src := make([]float32, 1<<20)
			for i := range src {
				src[i] = float32(i) / 1000
			}
			dst := make([]byte, 2*len(src))
			b.SetBytes(int64(len(dst)))
			for b.Loop() {
				f.encode(dst, src)
			}
		})
	}
}
