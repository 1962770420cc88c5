package pulsecol_test

import (
	"errors"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"gorgonia.org/gorgonia"
)

// TestLengths: one controller runs generations of several lengths, each as a controller of
// its own does; columns of one length are not those of another.
func TestLengths(t *testing.T) {
	cfg := pulsecol.Config{Sparsity: 0.6, GroupSize: 4, Schedule: pulsecol.Uniform{Refreshes: 1}}
	ctl := newController(t, cfg)
	type length struct {
		*kernel.Operands
		*rig
		alone *rig
	}
	var lengths []*length
	for i, n := range []int{20, 9, 33} {
		a := attncase.Seeded(uint64(i), kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: n, HeadDim: 8})
		r := &rig{t: t, g: gorgonia.NewGraph(), ctl: ctl}
		r.q, r.k, r.v, _ = qkv(r.g, a)
		r.y = must(pulsecol.Attention(r.q, r.k, r.v, ctl.Layer(0)))(t)
		gorgonia.Read(r.y, &r.out)
		r.m = must(pulsecol.NewMachine(r.g, ctl))(t)
		lengths = append(lengths, &length{a, r, newRig(t, a, cfg, 1, nil)})
	}
	for range 2 {
		for _, l := range lengths {
			l.rig.start(3)
			l.alone.start(3)
			for _, mode := range []pulsecol.Mode{pulsecol.Refresh, pulsecol.Reuse, pulsecol.Reuse} {
				tol.SameBits(t, "output", l.rig.step(l.Operands, mode), l.alone.step(l.Operands, mode))
			}
		}
	}
	lengths[0].start(3)
	lengths[0].rig.step(lengths[0].Operands, pulsecol.Refresh)
	lengths[1].let(lengths[1].Operands)
	if err := lengths[1].m.Step(); !errors.Is(err, pulsecol.ErrStale) {
		t.Errorf("a reuse of another length's columns: %v, want ErrStale", err)
	}
	lengths[0].rig.step(lengths[0].Operands, pulsecol.Reuse)
}
