package memplan

import (
	"math/rand/v2"
	"testing"
)

// TestPlace: buffers in use at one instant never overlap, the arena holds them all and
// is at least as large as the largest sum over an instant.
func TestPlace(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var line Timeline
		var all, open []*Buffer
		spare := map[*Buffer]bool{}
		for range 1 + r.IntN(40) {
			for range r.IntN(4) {
				b := line.Alloc(int64(r.IntN(5000)))
				all, open = append(all, b), append(open, b)
			}
			if r.IntN(4) == 0 {
				b := line.Spare(int64(r.IntN(5000)))
				all, spare[b] = append(all, b), true
			}
			for len(open) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(open))
				line.Free(open[i])
				open = append(open[:i], open[i+1:]...)
			}
			line.Tick()
		}
		size := line.Place()
		for i, a := range all {
			from, ok := a.Offset()
			if !ok {
				if !spare[a] {
					t.Fatalf("seed %d: buffer %d has no place", seed, i)
				}
				continue
			}
			if from%Alignment != 0 || from+a.Bytes() > size {
				t.Fatalf("seed %d: buffer %d at %d of %d bytes in an arena of %d", seed, i, from, a.Bytes(), size)
			}
			for j, b := range all[:i] {
				other, ok := b.Offset()
				if !ok || a.first > b.last || b.first > a.last {
					continue
				}
				if from < other+Round(b.Bytes()) && other < from+Round(a.Bytes()) {
					t.Fatalf("seed %d: buffers %d and %d overlap", seed, i, j)
				}
			}
		}
		for now := range line.now + 1 {
			var sum int64
			for _, b := range all {
				if !spare[b] && b.first <= now && now <= b.last {
					sum += Round(b.Bytes())
				}
			}
			if sum > size {
				t.Fatalf("seed %d: %d bytes at instant %d in an arena of %d", seed, sum, now, size)
			}
		}
	}
}

// TestPlaceShares: successive buffers take together the memory of the largest.
func TestPlaceShares(t *testing.T) {
	var line Timeline
	for _, bytes := range []int64{100, 5000, 1000, 5000} {
		b := line.Alloc(bytes)
		line.Free(b)
		line.Tick()
	}
	if got, want := line.Place(), Round(5000); got != want {
		t.Errorf("an arena of %d bytes, want %d", got, want)
	}
}

// TestSpare: a spare buffer takes idle memory and does not enlarge the arena.
func TestSpare(t *testing.T) {
	for _, c := range []struct {
		bytes int64
		fits  bool
	}{{512, true}, {4096, true}, {4352, false}} {
		var line Timeline
		line.Free(line.Alloc(8192))
		line.Tick()
		busy := line.Alloc(4096)
		b := line.Spare(c.bytes)
		line.Free(busy)
		if size := line.Place(); size != 8192 {
			t.Errorf("an arena of %d bytes, want 8192", size)
		}
		if _, ok := b.Offset(); ok != c.fits {
			t.Errorf("%d bytes: placed %v, want %v", c.bytes, ok, c.fits)
		}
	}
}

// TestEmpty: no buffers take no memory, an empty one a unit.
func TestEmpty(t *testing.T) {
	var none, one Timeline
	if got := none.Place(); got != 0 {
		t.Errorf("%d bytes for nothing", got)
	}
	one.Alloc(0)
	if got := one.Place(); got != Alignment {
		t.Errorf("%d bytes for an empty buffer, want %d", got, Alignment)
	}
}
