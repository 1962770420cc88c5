package outside_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/dream"
	"github.com/pulsecol/pulsecol/models/llada"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// traced is a generation whose steps are recorded.
type traced struct {
	*model
	m      *pulsecol.Machine
	seed   uint64
	layers int
	steps  int
	cancel func(layer int) // called by the layers of a step; may be nil
	trace  [][]uint32      // by step, the bits of all that it has left
	broken int             // steps that were cancelled
}

// Observe makes a traced the observer of its own layers.
func (x *traced) Observe(o pulsecol.Observation) {
	if x.cancel != nil {
		x.cancel(o.Layer)
	}
}

// newTraced builds the generation of a seed for a number of threads; nil for one with
// results that are undefined.
func newTraced(t testing.TB, seed uint64, threads int) *traced {
	r := rand.New(rand.NewPCG(seed, 2))
	s, layers, steps := drawShape(r), pick(r, 1, 2, 3), 3+r.IntN(4)
	p, sched := drawPattern(t, r, s, layers), drawSchedule(r, steps)
	x := &traced{seed: seed, layers: layers, steps: steps}
	cfg := pulsecol.Config{
		Sparsity: pick(r, 0.5, 0.8), GroupSize: p.group, Pattern: p.Pattern, Schedule: sched.Schedule,
		Threads: threads, Device: pulsecol.CPU, Observer: x,
		Precision: pick(r, pulsecol.Float32, pulsecol.Float32, pulsecol.BFloat16, pulsecol.Int16, pulsecol.Int8),
	}
	ctl, err := pulsecol.NewController(cfg)
	if err != nil { // fixed columns and an adaptive schedule
		return nil
	}
	x.model = drawModel(t, r, ctl, s, layers)
	if x.mask != nil || x.kind == "rows" {
		return nil
	}
	if r.IntN(2) == 0 {
		if err := op.NewWorkspace().Plan(x.g, ctl.Modes()); err != nil {
			t.Fatal(err)
		}
	}
	if r.IntN(3) == 0 {
		x.m = must(pulsecol.Attach(gorgonia.NewTapeMachine(x.g), ctl))(t)
	} else {
		x.m = must(pulsecol.NewMachine(x.g, ctl))(t)
	}
	t.Cleanup(func() { x.m.Close() })
	return x
}

// run runs all steps. try makes an attempt at one, which may be cancelled.
func (x *traced) run(try func(x *traced) error) error {
	if err := x.ctl.Start(x.steps); err != nil {
		return err
	}
	changes := rand.New(rand.NewPCG(x.seed, 3))
	for step := range x.steps {
		for _, in := range x.inputs {
			for i := range in {
				if changes.IntN(4) == 0 {
					in[i] = in[changes.IntN(len(in))]
				}
			}
		}
		for err := try(x); ; err = try(x) {
			if err == nil {
				break
			}
			if !errors.Is(err, context.Canceled) {
				return fmt.Errorf("seed %d, step %d: %w", x.seed, step+1, err)
			}
			if done, _ := x.ctl.Step(); done != step {
				return fmt.Errorf("seed %d: a cancelled step counts", x.seed)
			}
			x.broken++
		}
		var bits []uint32
		for l, s := range x.sites {
			for _, v := range s.got() {
				bits = append(bits, math.Float32bits(v))
			}
			if table, err := x.ctl.Columns(l); err == nil {
				bits = append(bits, table.Bits...)
			}
		}
		x.trace = append(x.trace, append(bits, uint32(x.ctl.LastMode())))
	}
	return nil
}

func plain(x *traced) error { return x.m.Step() }

// inLayer cancels every other attempt in the middle of a step, in one of its layers.
func inLayer(x *traced) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if done, _ := x.ctl.Step(); x.broken <= done {
		at := done % x.layers
		x.cancel = func(layer int) {
			if layer == at {
				cancel()
			}
		}
		defer func() { x.cancel = nil }()
	}
	return x.m.StepContext(ctx)
}

// anywhere cancels attempts after a time, which grows until the step is faster.
func anywhere(x *traced) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := time.AfterFunc(time.Duration(x.broken%20*x.broken)*10*time.Microsecond, cancel)
	defer timer.Stop()
	return x.m.StepContext(ctx)
}

// TestConcurrent: generations side by side, on any number of threads, some of them
// cancelled in the middle of steps that are then run again, leave the bits that each
// leaves alone.
func TestConcurrent(t *testing.T) {
	var alone []*traced
	for seed := uint64(0); len(alone) < cases(64); seed++ {
		if x := newTraced(t, seed, 1); x != nil {
			alone = append(alone, x)
			if err := x.run(plain); err != nil {
				t.Fatal(err)
			}
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	broken, steps := 0, 0
	for round, procs := range []int{1, 2, 3, 8} {
		runtime.GOMAXPROCS(procs)
		var group sync.WaitGroup
		together := make([]*traced, len(alone))
		errs := make([]error, len(alone))
		for i, x := range alone {
			together[i] = newTraced(t, x.seed, []int{0, 1, 2, 5}[(i+round)%4])
		}
		for i, x := range together {
			group.Go(func() { errs[i] = x.run([]func(*traced) error{plain, inLayer, anywhere}[(i+round)%3]) })
		}
		group.Wait()
		for i, x := range together {
			if errs[i] != nil {
				t.Error(errs[i])
				continue
			}
			for step := range x.trace {
				steps++
				if !slices.Equal(x.trace[step], alone[i].trace[step]) {
					t.Errorf("seed %d on %d processors: step %d has other bits than alone", x.seed, procs, step+1)
					break
				}
			}
			broken += x.broken
			if err := x.m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Logf("%d generations four times, %d steps, %d cancelled", len(alone), steps, broken)
	if broken == 0 {
		t.Error("no step was cancelled")
	}
}

// TestConcurrentModels: one open model serves several goroutines, with the tokens that it
// gives alone; a generation that is cancelled returns what there is.
func TestConcurrentModels(t *testing.T) {
	l := must(llada.Open(filepath.Join("..", "tinymodel", "llada")))(t)
	defer l.Close()
	d := must(dream.Open(filepath.Join("..", "tinymodel", "dream")))(t)
	defer d.Close()
	prompt := must(l.Encode("Q: Please reverse the list 6 5 4.\nA:"))(t)
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 4, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 2}, Device: pulsecol.CPU}
	generate := func(i int, ctx context.Context, onStep func(models.Progress)) (*models.Result, error) {
		cfg := cfg
		cfg.Threads = i % 3
		if i%2 == 0 {
			return l.Generate(ctx, prompt, cfg, llada.GenerateOptions{GenLength: 8, BlockLength: 4, Steps: 4, Temperature: 0.5, Seed: 7, OnStep: onStep})
		}
		return d.Generate(ctx, prompt, cfg, dream.GenerateOptions{MaxNewTokens: 8, Steps: 4, Temperature: 0.5, Seed: 7, OnStep: onStep})
	}
	var want [2]*models.Result
	for i := range want {
		want[i] = must(generate(i, t.Context(), nil))(t)
	}
	var group sync.WaitGroup
	side := 6
	if testing.Short() {
		side = 2
	}
	for i := range side {
		group.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			part, err := generate(i, ctx, func(p models.Progress) {
				if p.Step == 2 {
					cancel()
				}
			})
			if !errors.Is(err, context.Canceled) || part == nil || part.Steps != 2 {
				t.Errorf("%d: cancelled after step 2: %+v, %v", i, part, err)
			}
			got, err := generate(i, t.Context(), nil)
			if err != nil || !slices.Equal(got.OutputIDs, want[i%2].OutputIDs) || !slices.Equal(got.RefreshSteps, want[i%2].RefreshSteps) {
				t.Errorf("%d: %v, %v, want %v", i, got, err, want[i%2].OutputIDs)
			}
		})
	}
	group.Wait()
}
