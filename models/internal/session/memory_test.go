package session_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/session"
)

// heap is the memory that the program holds, when finalizers have nothing left to free.
func heap() int64 {
	var m runtime.MemStats
	for last, same := int64(0), 0; same < 3; {
		runtime.GC()
		time.Sleep(time.Millisecond)
		runtime.ReadMemStats(&m)
		now := int64(m.HeapAlloc)
		if same++; last-now > now/1000 {
			same = 0
		}
		last = now
	}
	return int64(m.HeapAlloc)
}

// graphLayer is about what Gorgonia's graph and machine take for a layer.
const graphLayer = 36_000

// TestSessionHoldsTheLargest: on the CPU a session that has run many lengths holds the predicted memory of
// the largest, besides its graphs, whatever the order of the lengths.
func TestSessionHoldsTheLargest(t *testing.T) {
	s := subjects(t)["llada"]
	const tokens, steps = 160, 2
	lengths := []int{20, 100, 180, 260, 340}
	largest := lengths[len(lengths)-1] + tokens
	for name, cfg := range map[string]pulsecol.Config{
		"full":    {},
		"columns": {Sparsity: 0.5, GroupSize: 1},
		"dual":    {Sparsity: 0.5, GroupSize: 1, Cache: pulsecol.DualCache},
		"prefix":  {Cache: pulsecol.PrefixCache},
	} {
		cfg.Device = pulsecol.CPU
		shape := models.Shape{Batch: 1, Len: largest, Rows: tokens}
		if cfg.Cache != pulsecol.NoCache {
			shape.Cached = largest
		}
		mem, err := session.PredictMemory(s.settings.Build, shape, cfg, tokens)
		if err != nil {
			t.Fatal(err)
		}
		predicted := mem.Workspace + mem.Columns + mem.Cache
		held := func(order func(i int) int) int64 {
			t.Helper()
			rng := rand.New(rand.NewPCG(1, 2))
			sess := s.session(t, cfg)
			before := heap()
			for i := range lengths {
				c := cachedCase{tokens: tokens, block: tokens, steps: steps}
				if _, err := s.generate(t.Context(), sess, s.prompts(rng, lengths[order(i)]), c, nil); err != nil {
					t.Fatal(err)
				}
			}
			held := heap() - before - int64(sess.Graphs())*3*graphLayer
			if err := sess.Close(); err != nil {
				t.Fatal(err)
			}
			return held
		}
		down := held(func(i int) int { return len(lengths) - 1 - i })
		up := held(func(i int) int { return i })
		for order, got := range map[string]int64{"ascending": up, "descending": down} {
			t.Logf("%s: %d bytes predicted, %d held after %s lengths", name, predicted, got, order)
			if math.Abs(float64(got-predicted)) > 0.15*float64(predicted) {
				t.Errorf("%s: %d bytes held after %s lengths, %d predicted", name, got, order, predicted)
			}
		}
	}
}
