package task

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"testing"
)

// TestPyRandom compares with random.Random of CPython 3.11 for the same seeds.
func TestPyRandom(t *testing.T) {
	if got := newPyRandom("held out").uint32(); got != 2749385560 {
		t.Errorf("first output %d, want 2749385560", got)
	}
	r := newPyRandom("a seed that is longer than one word of the key")
	for range 1300 { // more than two times the state
		r.uint32()
	}
	if a, b := r.uint32(), r.between(10000, 99999); a != 270035966 || b != 59325 {
		t.Errorf("later outputs %d and %d, want 270035966 and 59325", a, b)
	}
	r = newPyRandom("two")
	for _, c := range []struct{ n, first, second int }{{2, 1, 0}, {20, 6, 15}, {21, 0, 3}, {22, 2, 5}, {100, 58, 57}} {
		var from []string
		for i := range c.n {
			from = append(from, strconv.Itoa(i))
		}
		if a, b := r.two(from); a != strconv.Itoa(c.first) || b != strconv.Itoa(c.second) {
			t.Errorf("two of %d: %s and %s, want %d and %d", c.n, a, b, c.first, c.second)
		}
	}
}

// TestHeldOutTexts: the SHA-256 of every kind's texts with their answers, one a line, as
// data.make_texts of train/data.py makes them for the sizes and the seed of train/heldout.py.
// Needles and assignments are hashed without the texts that follow them there, which are made
// from the same number.
func TestHeldOutTexts(t *testing.T) {
	for _, c := range []struct {
		kind   string
		pieces func() []piece
		want   string
	}{
		{"arithmetic1", heldOutArithmetic1, "20c0885e06cd341440b1c81ec3fe940b7b58bdd50e3ac94627a19fcf342e3e1b"},
		{"arithmetic2", heldOutArithmetic2, "1650a05e32f16d687c4712d5987e0134786310a056dcae135e7fe0e019e4f775"},
		{"lists", heldOutLists, "2d7e8567164f78baeb2b977b6164054467da58e5632b804171cd3a07a1b4fcd1"},
		{"filler", heldOutFiller, "d11722a3c6da011b75d704d11502334bf249e98e4624c8220a6effd82ccf6f90"},
		{"needles", heldOutNeedles, "767fdd753c2541bcd207e32cc07ff715940baa77ec7cc9bb77322a574016f143"},
		{"assignments", heldOutAssignments, "493368d7d9a9eed462a3220eaf87217545082e0d79567c6f37e3aa7b3f10dd92"},
	} {
		sum := sha256.New()
		for _, p := range c.pieces() {
			fmt.Fprintf(sum, "%s%s\n", p.text, p.answer)
		}
		if got := fmt.Sprintf("%x", sum.Sum(nil)); got != c.want {
			t.Errorf("%s: %s, want %s; first text %q", c.kind, got, c.want, c.pieces()[0].text)
		}
	}
}
