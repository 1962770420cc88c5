package kernel

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
)

// ForEachISA runs f once per instruction set of this machine, as a subtest, with every
// call of a routine checked against the ends of its slices: assembly does not
// check them itself.
func ForEachISA(t *testing.T, f func(t *testing.T)) {
	for _, l := range isas() {
		t.Run(l.name, func(t *testing.T) {
			WithISA(l.name, func() { f(t) })
		})
	}
}

// WithISA runs f with the named instruction set, checked.
func WithISA(name string, f func()) {
	saved := active
	defer func() { active = saved }()
	for _, l := range isas() {
		if l.name == name {
			active = checked(l)
			f()
			return
		}
	}
	panic("no instruction set " + name)
}

// ISANames lists the instruction sets of this machine, fastest first.
func ISANames() (names []string) {
	for _, l := range isas() {
		names = append(names, l.name)
	}
	return names
}

// EachISABench runs f once per instruction set, unchecked.
func EachISABench(b *testing.B, f func(b *testing.B)) {
	saved := active
	defer func() { active = saved }()
	for _, l := range isas() {
		active = l
		b.Run(l.name, f)
	}
}

// CountProducts runs f and returns how many calls of mulRows it made. before gets
// the number of each.
func CountProducts(before func(n int), f func()) int {
	saved := active
	defer func() { active = saved }()
	var count atomic.Int64
	counting := *saved
	counting.mulRows = func(list []int32, k int, a []float32, lda int, b, d []float32, ldd int, accumulate bool, next *prefetch) {
		before(int(count.Add(1)))
		saved.mulRows(list, k, a, lda, b, d, ldd, accumulate, next)
	}
	active = &counting
	f()
	return int(count.Load())
}

// checked is an isa whose routines panic when a call breaks the contract that
// the comments of isa state.
func checked(l *isa) *isa {
	c := *l
	c.mulRows, c.mulCols = checkedMulRows(l.mulRows), checkedMulCols(l.mulCols)
	c.bf16, c.int16, c.codes = checkedBF16(l.bf16), checkedInt16(l.int16), checkedCodes(l.codes)
	c.softmax = func(s []float32, rows int, state []float32) {
		require("softmax", rows > 0 && rows*lanes <= len(s) && len(state) >= 3*lanes, rows, len(s), len(state))
		l.softmax(s, rows, state)
	}
	c.scaleRows = func(s []float32, rows int, w []float32) {
		require("scaleRows", rows > 0 && rows*lanes <= len(s) && len(w) >= lanes, rows, len(s), len(w))
		l.scaleRows(s, rows, w)
	}
	c.dotRows = func(dst, p []float32, rows int, w []float32) {
		require("dotRows", rows > 0 && rows%rowUnit == 0 && rows <= len(dst) && rows*lanes <= len(p) && len(w) >= lanes, rows, len(dst), len(p), len(w))
		l.dotRows(dst, p, rows, w)
	}
	c.transpose = func(dst []float32, ldd int, src []float32, lds, m, n int, scale []float32) {
		require("transpose scale", n <= len(scale), n, len(scale))
		requireTranspose(len(dst), ldd, len(src), lds, m, n)
		l.transpose(dst, ldd, src, lds, m, n, scale)
	}
	c.packF32 = func(dst []float32, ldd int, src []byte, lds, m, n int) {
		requireTranspose(len(dst), ldd, len(src)/4, lds, m, n)
		l.packF32(dst, ldd, src, lds, m, n)
	}
	c.packBF16 = func(dst []float32, ldd int, src []byte, lds, m, n int) {
		requireTranspose(len(dst), ldd, len(src)/2, lds, m, n)
		l.packBF16(dst, ldd, src, lds, m, n)
	}
	c.sumSquares = func(x []float32) float64 {
		require("sumSquares", len(x) > 0 && len(x)%lanes == 0, len(x))
		return l.sumSquares(x)
	}
	c.applyWeight = func(dst, x, weight []float32, factor float32) {
		require("applyWeight", len(x) > 0 && len(x)%lanes == 0 && len(dst) >= len(x) && len(weight) >= len(x), len(dst), len(x), len(weight))
		l.applyWeight(dst, x, weight, factor)
	}
	c.swiGLU = func(dst, gate, up []float32) {
		require("swiGLU", len(gate) > 0 && len(gate)%lanes == 0 && len(dst) >= len(gate) && len(up) >= len(gate), len(dst), len(gate), len(up))
		l.swiGLU(dst, gate, up)
	}
	c.rotate = func(dst []float32, ldd int, src, cos, sin []float32, heads int) {
		half := len(cos)
		require("rotate", half > 0 && half%rowUnit == 0 && len(sin) >= half && heads > 0 && ldd >= 2*half, half, len(sin), heads, ldd)
		require("rotate src", heads*2*half <= len(src), heads, half, len(src))
		require("rotate dst", (heads-1)*ldd+2*half <= len(dst), heads, half, ldd, len(dst))
		l.rotate(dst, ldd, src, cos, sin, heads)
	}
	c.sortKeys = func(order []uint32, scores []float32) {
		require("sortKeys", len(scores) > 0 && len(scores)%lanes == 0 && len(order) >= len(scores), len(order), len(scores))
		l.sortKeys(order, scores)
	}
	c.partition = func(bits, ties, order []uint32, digit uint32) int {
		n := len(order)
		require("partition", n > 0 && n%lanes == 0 && len(bits) == n/32 && len(ties) >= n+lanes, n, len(bits), len(ties))
		return l.partition(bits, ties, order, digit)
	}
	return &c
}

func checkedMulRows(f mulRowsFunc) mulRowsFunc {
	return func(list []int32, k int, a []float32, lda int, b, d []float32, ldd int, accumulate bool, next *prefetch) {
		m := len(list)
		require("mulRows", m > 0 && m%rowUnit == 0 && k > 0 && lda >= k && ldd >= lanes, m, k, lda, ldd)
		require("mulRows list", slices.Min(list) >= 0 && cap(list) >= m+prefetchRows, m)
		require("mulRows a", int(slices.Max(list))*lda+k <= len(a), int(slices.Max(list)), k, lda, len(a))
		require("mulRows b", k*lanes <= len(b), k, len(b))
		require("mulRows c", (m-1)*ldd+lanes <= len(d), m, ldd, len(d))
		f(list, k, a, lda, b, d, ldd, accumulate, next)
	}
}

func checkedMulCols(f mulColsFunc) mulColsFunc {
	return func(m int, list []int32, a []float32, lda int, b, d []float32, ldd int, keep *[lanes]float32, next *prefetch) {
		require("mulCols", m > 0 && m%rowUnit == 0 && len(list) > 0 && lda >= m && ldd >= lanes, m, len(list), lda, ldd)
		require("mulCols list", slices.Min(list) >= 0 && cap(list) >= len(list)+prefetchRows, m)
		require("mulCols a", int(slices.Max(list))*lda+m <= len(a), int(slices.Max(list)), m, lda, len(a))
		require("mulCols b", len(list)*lanes <= len(b), len(list), len(b))
		require("mulCols c", (m-1)*ldd+lanes <= len(d), m, ldd, len(d))
		f(m, list, a, lda, b, d, ldd, keep, next)
	}
}

// checkedBF16 is checked for products of bfloat16.
func checkedBF16(p bf16Products) bf16Products {
	c := p
	c.mulRows, c.mulCols = checkedMulRows(p.mulRows), checkedMulCols(p.mulCols)
	c.packValues = func(dst []float32, ldd int, list []int32, src []float32, lds, n int) {
		rows, width := p.words(len(list)), n
		if p.tiled {
			rows, width = roundUp(width, tileRows), rows
		}
		requirePack(dst, ldd, list, src, lds, n, rows, width)
		p.packValues(dst, ldd, list, src, lds, n)
	}
	if p.tiled {
		end := func(m, k, lda int) int { return leftWord(lda, m-1, k-1) + 1 }
		c.mulRows = func(list []int32, k int, a []float32, lda int, b, d []float32, ldd int, accumulate bool, next *prefetch) {
			m := len(list)
			require("mulRows", m > 0 && m%rowUnit == 0 && k > 0 && k%p.unit == 0 && lda >= k && lda%p.unit == 0 && ldd >= lanes, m, k, lda, ldd)
			require("mulRows a", end(m, k, lda) <= len(a), m, k, lda, len(a))
			require("mulRows b", k*lanes <= len(b), k, len(b))
			require("mulRows c", (m-1)*ldd+lanes <= len(d), m, ldd, len(d))
			p.mulRows(list, k, a, lda, b, d, ldd, accumulate, next)
		}
		c.mulCols = func(m int, list []int32, a []float32, lda int, b, d []float32, ldd int, keep *[lanes]float32, next *prefetch) {
			words := len(list)
			require("mulCols", m > 0 && m%rowUnit == 0 && words > 0 && words%p.unit == 0 && lda >= words && ldd >= lanes, m, words, lda, ldd)
			require("mulCols a", lda%p.unit == 0 && end(m, words, lda) <= len(a), m, words, lda, len(a))
			require("mulCols b", words*lanes <= len(b), words, len(b))
			require("mulCols c", (m-1)*ldd+lanes <= len(d), m, ldd, len(d))
			p.mulCols(m, list, a, lda, b, d, ldd, keep, next)
		}
	}
	c.packRows = func(dst []float32, ldd int, list []int32, src []float32, lds, n int) {
		requirePack(dst, ldd, list, src, lds, n, p.words(len(list)), n)
		p.packRows(dst, ldd, list, src, lds, n)
	}
	c.packCols = func(dst []float32, ldd int, list []int32, src []float32, lds, n int) {
		rows := len(list)
		if p.tiled {
			rows = roundUp(rows, tileRows)
		}
		requirePack(dst, ldd, list, src, lds, n, rows, p.words(n))
		p.packCols(dst, ldd, list, src, lds, n)
	}
	return c
}

// leftWord is where word p of row i of a left-hand matrix is.
func leftWord(lda, i, p int) int {
	if b := &active.bf16; b.tiled {
		return i/tileRows*tileRows*lda + p/b.unit*tileRows*b.unit + i%tileRows*b.unit + p%b.unit
	}
	return i*lda + p
}

// checkedInt16 is checked for products of integers.
func checkedInt16(p int16Products) int16Products {
	c := p
	c.mulRows = checkedMulRows(p.mulRows)
	mulCols := checkedMulCols(p.mulCols)
	c.mulCols = func(m int, list []int32, a []float32, lda int, b, d []float32, ldd int, keep *[lanes]float32, next *prefetch) {
		require("mulCols of integers", keep == nil, m)
		mulCols(m, list, a, lda, b, d, ldd, keep, next)
	}
	c.packRows = func(dst []float32, ldd int, units []float32, list []int32, src []float32, lds, n int, largest, share float32) {
		requirePack(dst, ldd, list, src, lds, n, p.words(len(list)), n)
		require("packRows units", n <= len(units), n, len(units))
		p.packRows(dst, ldd, units, list, src, lds, n, largest, share)
	}
	c.packCols = func(dst []float32, ldd int, units []float32, list []int32, src []float32, lds, n int, largest float32) {
		requirePack(dst, ldd, list, src, lds, n, len(list), p.words(n))
		require("packCols units", len(list) <= len(units), len(list), len(units))
		p.packCols(dst, ldd, units, list, src, lds, n, largest)
	}
	c.unscale = func(x []float32, ldc int, sums []float32, rows int, byRow, byLane, keep []float32) {
		require("unscale", rows > 0 && ldc >= lanes && (rows-1)*ldc+lanes <= len(x) && rows*lanes <= len(sums), rows, ldc, len(x), len(sums))
		require("unscale units", rows <= len(byRow) && lanes <= len(byLane) && (keep == nil || lanes <= len(keep)), rows, len(byRow), len(byLane), len(keep))
		p.unscale(x, ldc, sums, rows, byRow, byLane, keep)
	}
	return c
}

// requirePack checks a packing of n columns to rows words of width.
func requirePack(dst []float32, ldd int, list []int32, src []float32, lds, n, rows, width int) {
	require("pack", rows > 0 && n > 0 && lds >= n && ldd >= width, rows, n, lds, ldd)
	require("pack src", slices.Min(list) >= 0 && int(slices.Max(list))*lds+n <= len(src), int(slices.Max(list)), lds, n, len(src))
	require("pack dst", (rows-1)*ldd+width <= len(dst), rows, ldd, width, len(dst))
}

func requireTranspose(dst, ldd, src, lds, m, n int) {
	require("transpose", m > 0 && n > 0 && m%rowUnit == 0 && n%rowUnit == 0, m, n)
	require("transpose dst", (n-1)*ldd+m <= dst, m, n, ldd, dst)
	require("transpose src", (m-1)*lds+n <= src, m, n, lds, src)
}

func require(what string, ok bool, values ...int) {
	if !ok {
		panic(fmt.Sprint("contract of ", what, " broken by ", values))
	}
}
