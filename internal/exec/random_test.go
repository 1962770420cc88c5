package exec

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pulsecol/pulsecol/internal/memplan"
	"gorgonia.org/gorgonia"
)

// TestSlotsDoNotOverlap: in random graphs no two buffers of a device share memory while both
// are in use, and all are inside the arena.
func TestSlotsDoNotOverlap(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBuilder(t)
		nodes := []*gorgonia.Node{b.input("x", 1+r.IntN(500))}
		var fakes []*fake
		for i := range 3 + r.IntN(20) {
			f := &fake{name: fmt.Sprint("f", i), gpu: r.IntN(4) == 0}
			scratch, inPlace, spare := r.IntN(3)*r.IntN(3000), r.IntN(2) == 0, r.IntN(3) == 0
			f.plan = func(run *Run) error {
				if scratch > 0 {
					run.Scratch(int64(scratch), Scores)
				}
				if spare {
					run.Spare(777)
				}
				if inPlace {
					return inPlaceIfPossible(run)
				}
				return resultIfPlanned(run)
			}
			in := []*gorgonia.Node{nodes[r.IntN(len(nodes))]}
			if r.IntN(2) == 0 {
				in = append(in, nodes[r.IntN(len(nodes))])
			}
			nodes = append(nodes, b.add(f, in...))
			fakes = append(fakes, f)
		}
		p := b.plan(Options{Keep: []*gorgonia.Node{nodes[len(nodes)-1]}})
		checkOverlap(t, seed, p, b.g, fakes)
	}
}

// use is a buffer and the operators, by number, in whose runs it is in use.
type use struct{ at, bytes, first, last int64 }

func checkOverlap(t *testing.T, seed uint64, p *Plan, g *gorgonia.ExprGraph, fakes []*fake) {
	t.Helper()
	uses := map[*memplan.Buffer]*use{}
	device := map[*memplan.Buffer]*Arena{}
	for _, f := range fakes {
		for _, s := range f.at.slots[Dense] {
			at, ok := s.Offset()
			if s.Persistent() || !ok {
				continue
			}
			u := uses[s.buffer]
			if u == nil {
				u = &use{at: at, bytes: s.Bytes(), first: int64(f.at.index)}
				uses[s.buffer], device[s.buffer] = u, p.arena(f)
			}
			u.first, u.last = min(u.first, int64(f.at.index)), max(u.last, int64(f.at.index))
			if s.Kind() != KindResult && s.Kind() != KindInPlace {
				continue
			}
			for it := g.To(f.at.Node().ID()); it.Next(); {
				u.last = max(u.last, int64(it.Node().(*gorgonia.Node).Op().(*fake).at.index))
			}
		}
	}
	for a, x := range uses {
		if x.at < 0 || x.at+x.bytes > device[a].Transient {
			t.Errorf("seed %d: %+v outside an arena of %d bytes", seed, *x, device[a].Transient)
		}
		for b, y := range uses {
			if a != b && device[a] == device[b] && x.first <= y.last && y.first <= x.last && x.at < y.at+y.bytes && y.at < x.at+x.bytes {
				t.Errorf("seed %d: %+v and %+v overlap", seed, *x, *y)
			}
		}
	}
}
