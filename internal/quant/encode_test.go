package quant_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// encoded returns what a row decodes to after it was encoded.
func encoded(t testing.TB, typ quant.DType, src []float32) []float32 {
	t.Helper()
	data := make([]byte, typ.Bytes(len(src)))
	if err := typ.Encode(data, src); err != nil {
		t.Fatalf("%v: %v", typ, err)
	}
	got := make([]float32, len(src))
	typ.Decode(got, data, 0)
	return got
}

// distance is the L2 norm of the difference, relative to 1.
func distance(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum = math.Hypot(sum, float64(a[i])-float64(b[i]))
	}
	return sum
}

// rows are 256 elements each, of many kinds.
func rows() map[string][]float32 {
	r := rand.New(rand.NewPCG(7, 1))
	all := map[string][]float32{}
	add := func(name string, element func(i int) float64) {
		row := make([]float32, 256)
		for i := range row {
			row[i] = float32(element(i))
		}
		all[name] = row
	}
	add("zeros", func(int) float64 { return 0 })
	add("negative zeros", func(int) float64 { return math.Copysign(0, -1) })
	add("ones", func(int) float64 { return 1 })
	add("constant", func(int) float64 { return -0.0371 })
	add("normal", func(int) float64 { return 0.02 * r.NormFloat64() })
	add("long tails", func(int) float64 { return 0.01 * r.NormFloat64() / (0.05 + r.Float64()) })
	add("positive", func(int) float64 { return 3 + r.Float64() })
	add("negative", func(int) float64 { return -3 - r.Float64() })
	add("one of 256", func(i int) float64 { return float64(i / 255) })
	add("outlier", func(i int) float64 { return r.NormFloat64() + 1000*float64(i/255) })
	add("two signs", func(i int) float64 { return float64(1 - 2*(i%2)) })
	add("slope", func(i int) float64 { return float64(i-128) / 100 })
	add("growing", func(i int) float64 { return r.NormFloat64() * math.Exp2(float64(i)/16-8) })
	add("large", func(int) float64 { return 60000 * (2*r.Float64() - 1) })
	add("small", func(int) float64 { return 1e-6 * r.NormFloat64() })
	add("denormal", func(int) float64 { return 1e-41 * r.NormFloat64() })
	add("least", func(i int) float64 { return float64(math.SmallestNonzeroFloat32) * float64(i%3-1) })
	return all
}

// bounds are, by type, how large the root mean square error of a block may be: a part of
// the largest magnitude of an element of the block, and a part of what the least binary16
// above 0 is, which rounding of small scales and minima adds.
//
// A search is never worse than plain rounding, whose step s is, for n values on either side
// of 0, 1/n: the error is s/2, or s for the largest value of the other sign, which has no
// code. For codes of 0 to k of a line between two elements it is 2/k; the error is s/2. A
// block of 256 rounds scales of lines to k/126 steps and minima to 1/126 more, and other
// scales to 1/256 (Q6_K) or 1/64 (IQ4_XS) of the largest value times 1/n. The IQ4 types
// have a gap of 23 in 127. 1/100 is for scales that are not those of plain rounding, and for
// their 11 bits.
var bounds = map[quant.DType]struct{ part, tiny float64 }{
	quant.F32: {0, 0}, quant.BF16: {1.0 / 256, 0x1p-110}, quant.F16: {1.0 / 2048, 1},
	quant.Q8_0: {1.01 * 0.5 / 127, 127}, quant.Q4_0: {1.01 / 8, 8}, quant.Q5_0: {1.01 / 16, 16},
	quant.Q4_1: {1.01 / 15, 16}, quant.Q5_1: {1.01 / 31, 32},
	quant.Q4_K: {1.01 * (1/15.0 + 2/126.0 + 1/126.0), 64 * 16}, quant.Q5_K: {1.01 * (1/31.0 + 2/126.0 + 1/126.0), 64 * 32},
	quant.Q6_K: {1.01 * (1/32.0 + 1/256.0), 128 * 32}, quant.IQ4_NL: {1.01 * 14 / 113, 127}, quant.IQ4_XS: {1.01 * (14/113.0 + 1/64.0), 32 * 127},
}

// checkBound holds the error of each block to the type's bound.
func checkBound(t testing.TB, typ quant.DType, name string, src, got []float32) {
	t.Helper()
	size := max(typ.Block(), 32)
	for at := 0; at < len(src); at += size {
		largest := 0.0
		for _, e := range src[at:][:size] {
			largest = max(largest, math.Abs(float64(e)))
		}
		b := bounds[typ]
		limit := b.part*largest + b.tiny*0x1p-24
		if rms := distance(src[at:][:size], got[at:][:size]) / math.Sqrt(float64(size)); rms > limit {
			t.Errorf("%v, %s: root mean square error %g of elements up to %g, want at most %g", typ, name, rms, largest, limit)
		}
	}
}

// TestEncodeBound: the error is within the type's bound, also of elements that decode from a
// block.
func TestEncodeBound(t *testing.T) {
	for name, row := range rows() {
		for _, typ := range quant.WeightTypes() {
			got := encoded(t, typ, row)
			checkBound(t, typ, name, row, got)
			again := encoded(t, typ, got)
			checkBound(t, typ, name+", again", got, again)
		}
	}
}

// TestEncodeStays: blocks of one scale that were encoded decode to elements that encode to
// themselves, or to the same codes of a scale that rounds otherwise. The other types leave
// several ways to write the same elements, and a search may take another one.
func TestEncodeStays(t *testing.T) {
	for name, row := range rows() {
		for _, typ := range []quant.DType{quant.F32, quant.BF16, quant.F16, quant.Q8_0} {
			got := encoded(t, typ, row)
			tol.SameBits(t, typ.String()+", "+name, encoded(t, typ, got), got)
		}
		for _, typ := range []quant.DType{quant.Q4_0, quant.Q5_0, quant.IQ4_NL} {
			got := encoded(t, typ, row)
			if off := distance(encoded(t, typ, got), got); off > tolerable(got) {
				t.Errorf("%v, %s: the decoded elements encode to others: %g", typ, name, off)
			}
		}
	}
}

// TestEncodeExact: elements that a format holds come back.
func TestEncodeExact(t *testing.T) {
	for _, typ := range quant.WeightTypes() {
		for name, row := range map[string][]float32{"zeros": rows()["zeros"], "ones": rows()["ones"]} {
			got := encoded(t, typ, row)
			if name == "zeros" || typ == quant.F32 {
				if !slices.Equal(got, row) {
					t.Errorf("%v, %s: %v", typ, name, got[:4])
				}
			}
			// A scale of 1/15 or the like has 11 bits, the multiple of a scale of scales 6.
			tol.CloseAbs(t, got, row, 1.0/128)
		}
	}
}

// TestEncodeRefuses: what no block can hold is an error that says where it is.
func TestEncodeRefuses(t *testing.T) {
	for _, typ := range quant.WeightTypes() {
		for _, c := range []struct {
			value float32
			want  string
		}{
			{float32(math.NaN()), "element 300 is NaN, want a finite number"},
			{float32(math.Inf(-1)), "element 300 is -Inf, want a finite number"},
			{3e38, "element 300 is 3e+38, which " + typ.String() + " cannot hold"},
		} {
			row := slices.Repeat([]float32{0.5}, 512)
			row[300] = c.value
			err := typ.Encode(make([]byte, typ.Bytes(512)), row)
			if c.value == 3e38 && (typ == quant.F32 || typ == quant.BF16) {
				if err != nil {
					t.Errorf("%v: %v", typ, err)
				}
				continue
			}
			var e *quant.RangeError
			if !errors.As(err, &e) || e.Element != 300 || err.Error() != c.want {
				t.Errorf("%v: error %v, want %s", typ, err, c.want)
			}
		}
	}
	if err := quant.BF16.Encode(make([]byte, 2), []float32{math.MaxFloat32}); err == nil {
		t.Error("BF16: the largest float32 became an infinity")
	}
}

// plain encodes 32 elements by rounding alone: to steps that bring the element of largest
// magnitude to the first code, or the least and the largest to the first and the last.
func plain(typ quant.DType, src []float32) []float32 {
	got := make([]float32, len(src))
	half := func(x float64) float64 {
		var b [2]byte
		if err := quant.F16.Encode(b[:], []float32{float32(x)}); err != nil {
			panic(err)
		}
		var y [1]float32
		quant.F16.Decode(y[:], b[:], 0)
		return float64(y[0])
	}
	for at := 0; at < len(src); at += 32 {
		x := src[at:][:32]
		extreme, least, most := 0.0, math.Inf(1), math.Inf(-1)
		for _, e := range x {
			if math.Abs(float64(e)) > math.Abs(extreme) {
				extreme = float64(e)
			}
			least, most = min(least, float64(e)), max(most, float64(e))
		}
		low, high, step, from := 0.0, 0.0, 0.0, 0.0
		switch typ {
		case quant.Q8_0:
			low, high, step = -127, 127, extreme/127
		case quant.Q4_0:
			low, high, step = -8, 7, extreme/-8
		case quant.Q5_0:
			low, high, step = -16, 15, extreme/-16
		case quant.Q4_1:
			high, step, from = 15, (most-least)/15, least
		case quant.Q5_1:
			high, step, from = 31, (most-least)/31, least
		}
		step, from = half(step), half(from)
		for i, e := range x {
			code := 0.0
			if step != 0 {
				code = min(max(math.Round((float64(e)-from)/step), low), high)
			}
			got[at+i] = float32(from + step*code)
		}
	}
	return got
}

// TestEncodeBetterThanPlain: searches end with less error than plain rounding, and none is
// worse by more than the rounding of a scale to 11 bits.
func TestEncodeBetterThanPlain(t *testing.T) {
	for typ, want := range map[quant.DType]float64{quant.Q8_0: 1, quant.Q4_0: 0.95, quant.Q5_0: 0.96, quant.Q4_1: 0.93, quant.Q5_1: 0.93} {
		for name, row := range rows() {
			got, limit := distance(encoded(t, typ, row), row), distance(plain(typ, row), row)
			largest := tolerable(row)
			if got > limit+largest {
				t.Errorf("%v, %s: error %g, of plain rounding %g", typ, name, got, limit)
			}
			if name == "normal" && got > want*limit {
				t.Errorf("%v, %s: error %g, want at most %g of the %g of plain rounding", typ, name, got, want, limit)
			}
		}
	}
}

// TestEncodeLines: blocks with scales of scales have about the error of plain rounding to
// lines that are exact, also where no element is below 0.
func TestEncodeLines(t *testing.T) {
	for _, name := range []string{"normal", "positive", "negative", "slope", "growing"} {
		row := rows()[name]
		for typ, last := range map[quant.DType]float64{quant.Q4_K: 15, quant.Q5_K: 31} {
			exact := make([]float32, len(row))
			for at := 0; at < len(row); at += 32 {
				least, most := 0.0, math.Inf(-1)
				for _, e := range row[at:][:32] {
					least, most = min(least, float64(e)), max(most, float64(e))
				}
				step := (most - least) / last
				for i, e := range row[at:][:32] {
					exact[at+i] = float32(least + step*math.Round((float64(e)-least)/step))
				}
			}
			got, limit := distance(encoded(t, typ, row), row), distance(exact, row)
			if got > 1.1*limit { // 6 bits of scales
				t.Errorf("%v, %s: error %g, of exact lines %g", typ, name, got, limit)
			}
		}
	}
}

// tolerable is the norm of an error of 11-bit rounding, or that of binary16's least value.
func tolerable(row []float32) float64 {
	norm := distance(row, make([]float32, len(row)))
	return norm*0x1p-11 + 32*0x1p-24*math.Sqrt(float64(len(row)))
}

// likeReference are the errors that were measured, relative to those of llama.cpp's
// quantizer: a search that becomes worse shows.
var likeReference = map[quant.DType]float64{
	quant.Q8_0: 1, quant.Q4_0: 0.943, quant.Q4_1: 0.893, quant.Q5_0: 0.937, quant.Q5_1: 0.891,
	quant.Q4_K: 0.976, quant.Q5_K: 0.929, quant.Q6_K: 0.866, quant.IQ4_NL: 0.977, quant.IQ4_XS: 0.8565,
}

// TestEncodeLikeReference: the error is a part of that of llama.cpp's quantizer on its own
// elements, over the rows that are not zero, relative to each row's norm.
// testdata has those of the types whose quantizer there searches; the folder that
// PULSECOL_GGUF names may have those of all.
func TestEncodeLikeReference(t *testing.T) {
	dir := golden.Dir(t, "gguf")
	if other := os.Getenv("PULSECOL_GGUF"); other != "" {
		dir = other
	}
	set, err := safetensors.Open(filepath.Join(dir, "blocks.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	tested := 0
	for _, name := range set.Names() {
		kind, ok := strings.CutSuffix(name, ".quantized.src")
		if !ok {
			continue
		}
		typ, ok := quant.Parse(kind)
		if !ok {
			continue // Q2_K and Q3_K
		}
		tested++
		src, cols := tensor(t, set, name)
		want, _ := tensor(t, set, kind+".quantized.f32")
		got := encoded(t, typ, src)
		var mine, theirs float64
		for at := 0; at < len(src); at += cols {
			row := src[at:][:cols]
			norm := distance(row, make([]float32, cols))
			if norm == 0 {
				continue
			}
			mine = math.Hypot(mine, distance(got[at:][:cols], row)/norm)
			theirs = math.Hypot(theirs, distance(want[at:][:cols], row)/norm)
		}
		t.Logf("%-6v %.4f of the error of llama.cpp", typ, mine/theirs)
		if !(mine <= likeReference[typ]*theirs) {
			t.Errorf("%v: error %.4f of llama.cpp's, want at most %g", typ, mine/theirs, likeReference[typ])
		}
	}
	if tested < 5 {
		t.Errorf("%d types, want 5 at least", tested)
	}
}

func tensor(t *testing.T, set *safetensors.File, name string) (values []float32, cols int) {
	t.Helper()
	x, err := set.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	if values, err = x.Float32s(); err != nil {
		t.Fatal(err)
	}
	return values, x.Shape[1]
}
