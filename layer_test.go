package pulsecol_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// layersRig has a layer of its own settings for each configuration, each with inputs of its
// own, and the gradients of the sum of weights times all outputs.
type layersRig struct {
	*rig
	inputs [][]*gorgonia.Node // q, k, v and the mask if there is one, of each layer
	outs   []gorgonia.Value
	grads  [][3]gorgonia.Value
}

func newLayersRig(t *testing.T, a *kernel.Operands, own []pulsecol.LayerConfig, shared pulsecol.Config, weights []float32, plan bool) *layersRig {
	t.Helper()
	shared.Layers = func(i int, all pulsecol.LayerConfig) pulsecol.LayerConfig {
		if all.Sparsity != shared.Sparsity || all.GroupSize != shared.GroupSize || all.Pattern != nil {
			t.Errorf("layer %d gets %+v, not what the Config has", i, all)
		}
		return own[i]
	}
	r := &layersRig{rig: &rig{t: t, g: gorgonia.NewGraph(), ctl: newController(t, shared)}}
	r.outs, r.grads = make([]gorgonia.Value, len(own)), make([][3]gorgonia.Value, len(own))
	var cost *gorgonia.Node
	var wrt gorgonia.Nodes
	w := variable(r.g, "weights", weights, a.Batch, a.Heads, a.Len, a.HeadDim)
	for i := range own {
		in := []*gorgonia.Node{}
		kv := []int{a.Batch, a.KVHeads, a.Len, a.HeadDim}
		for j, x := range [][]float32{a.Q, a.K, a.V} {
			shape := kv
			if j == 0 {
				shape = w.Shape()
			}
			in = append(in, variable(r.g, fmt.Sprintf("%c%d", "qkv"[j], i), x, shape...))
		}
		var opts []pulsecol.AttentionOption
		if a.Valid != nil {
			in = append(in, variable(r.g, fmt.Sprintf("mask%d", i), a.Valid, a.Batch, a.Len))
			opts = append(opts, pulsecol.WithPaddingMask(in[3]))
		}
		y := must(pulsecol.Attention(in[0], in[1], in[2], r.ctl.Layer(i), opts...))(t)
		gorgonia.Read(y, &r.outs[i])
		sum := must(gorgonia.Sum(must(gorgonia.HadamardProd(y, w))(t)))(t)
		if cost != nil {
			sum = must(gorgonia.Add(cost, sum))(t)
		}
		cost = sum
		wrt = append(wrt, in[:3]...)
		r.inputs = append(r.inputs, in)
	}
	for i, n := range must(op.Grad(cost, wrt...))(t) {
		gorgonia.Read(n, &r.grads[i/3][i%3])
	}
	if plan {
		r.plan()
	}
	r.m = must(pulsecol.NewMachine(r.g, r.ctl))(t)
	t.Cleanup(func() { r.m.Close() })
	return r
}

// step runs a step on a in all layers.
func (r *layersRig) step(a *kernel.Operands, mode pulsecol.Mode) {
	r.t.Helper()
	for _, in := range r.inputs {
		for j, x := range [][]float32{a.Q, a.K, a.V} {
			if err := gorgonia.Let(in[j], dense(x, in[j].Shape()...)); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if got := r.ctl.Mode(); got != mode {
		r.t.Fatalf("the next step is announced as %v, want %v", got, mode)
	}
	if err := r.m.Step(); err != nil {
		r.t.Fatal(err)
	}
}

// TestLayerSettings: each layer of a controller with settings of their own computes, bit for
// bit, what it does alone under a Config with these settings, in refreshes, reuse and dense
// steps, with its gradients.
func TestLayerSettings(t *testing.T) {
	cases := 60
	if testing.Short() {
		cases = 10
	}
	r := attncase.Rand(23)
	for i := range cases {
		c := newGradCase(r)
		if i%3 == 0 { // long enough for sparsities to differ
			c.a = attncase.Seeded(r.Uint64(), kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 40 + r.IntN(9), HeadDim: 8})
			c.weights = attncase.Normal(r, len(c.a.Q), 1)
		}
		a, n := c.a, c.a.Len
		b := attncase.Seeded(r.Uint64(), a.Shape)
		b.Valid = a.Valid
		own := []pulsecol.LayerConfig{
			{}, // dense
			{Sparsity: 0.5, GroupSize: 1 + r.IntN(n)},
			{Pattern: pulsecol.SlidingWindow{Width: 2}, GroupSize: 2},
			{Sparsity: 0.8, GroupSize: 3, Pattern: pulsecol.Blocks{Size: 2}},
			{Sparsity: 0.3},
			{Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{randomColumns(r, 1, 1, n, 2)}}},
		}
		r.Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
		own = own[:1+r.IntN(len(own))]
		refreshes, unchanging := false, false
		for _, l := range own {
			refreshes = refreshes || l.Sparsity > 0
			unchanging = unchanging || l.Sparsity == 0 && l.Pattern != nil
		}
		first, second := refresh, reuse
		switch {
		case !refreshes && unchanging:
			first = reuse
		case !refreshes:
			first, second = denseStep, denseStep
		}
		t.Run(fmt.Sprintf("%d-%s-%d layers", i, caseName(a.Shape, 0), len(own)), func(t *testing.T) {
			all := newLayersRig(t, a, own, pulsecol.Config{Sparsity: 0.7, GroupSize: 5, Schedule: refreshOnce, Scale: c.cfg.Scale}, c.weights, r.IntN(2) == 0)
			all.start(3)
			var alone []*gradRig
			for _, l := range own {
				cfg := pulsecol.Config{Sparsity: l.Sparsity, GroupSize: l.GroupSize, Pattern: l.Pattern, Schedule: refreshOnce, Scale: c.cfg.Scale}
				one := newGradRig(t, a, cfg, c.weights, nil)
				one.start(3)
				alone = append(alone, one)
			}
			for step, in := range []*kernel.Operands{a, b, a} {
				mode := []pulsecol.Mode{first, second, denseStep}[step]
				all.ctl.SetDense(step == 2)
				all.step(in, mode)
				for i, one := range alone {
					one.ctl.SetDense(step == 2)
					grads := one.gradients(in, one.ctl.Mode())
					what := fmt.Sprintf("layer %d (%+v), step %d", i, own[i], step+1)
					tol.SameBits(t, what, all.outs[i].Data().([]float32), one.values())
					for j, want := range grads {
						tol.SameBits(t, what+", gradient", all.grads[i][j].Data().([]float32), want)
					}
				}
			}
		})
	}
}

// TestLayerConfig: a layer shows its settings, and wrong ones are an error of its Attention.
func TestLayerConfig(t *testing.T) {
	ctl := newController(t, pulsecol.Config{Sparsity: 0.5, Layers: func(i int, l pulsecol.LayerConfig) pulsecol.LayerConfig {
		switch i {
		case 1:
			l.Sparsity = 0.9
		case 2:
			l.GroupSize, l.Pattern = 7, pulsecol.Blocks{}
		case 3:
			l.Sparsity = 2
		case 4:
			panic("four")
		case 5:
			l.Pattern, l.GroupSize = pulsecol.Fixed{}, 0
		}
		return l
	}})
	for i, want := range []pulsecol.LayerConfig{{0.5, 32, pulsecol.Columns{}}, {0.9, 32, pulsecol.Columns{}}, {0.5, 7, pulsecol.Blocks{}}} {
		if got := ctl.Layer(i).Config(); got != want {
			t.Errorf("layer %d: %+v, want %+v", i, got, want)
		}
	}
	a := attncase.Seeded(1, small)
	for i, want := range map[int]string{3: "layer 3: pulsecol: invalid config: Sparsity is 2", 4: "Layers panics for layer 4: four", 5: "layer 5: pulsecol: invalid config: Pattern fixed columns"} {
		q, k, v, _ := qkv(gorgonia.NewGraph(), a)
		if _, err := pulsecol.Attention(q, k, v, ctl.Layer(i)); !errors.Is(err, pulsecol.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("layer %d: %v, want ErrConfig with %q", i, err, want)
		}
	}
	_, err := pulsecol.NewController(pulsecol.Config{Cache: pulsecol.DualCache, Layers: func(_ int, l pulsecol.LayerConfig) pulsecol.LayerConfig { return l }})
	if !errors.Is(err, pulsecol.ErrConfig) || !strings.Contains(err.Error(), "Cache dual needs the same settings in all layers") {
		t.Errorf("Layers and a Cache: %v", err)
	}
}

// TestSetSparsity: after SetSparsity the next sparse step refreshes, and steps are those of a
// controller that has had the sparsity from the start.
func TestSetSparsity(t *testing.T) {
	a, b := attncase.Seeded(1, small), attncase.Seeded(2, small)
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 4, Schedule: refreshOnce}
	changed := newRig(t, a, cfg, 2, nil)
	changed.start(9)
	changed.step(a, refresh)
	before := changed.step(b, reuse)
	if err := changed.ctl.SetSparsity(0.9); err != nil {
		t.Fatal(err)
	}
	if got := changed.ctl.Config().Sparsity; got != 0.9 {
		t.Errorf("Config has sparsity %v", got)
	}
	cfg.Sparsity = 0.9
	fresh := newRig(t, a, cfg, 2, nil)
	fresh.start(9)
	tol.SameBits(t, "refresh", changed.step(a, refresh), fresh.step(a, refresh))
	after := changed.step(b, reuse)
	tol.SameBits(t, "reuse", after, fresh.step(b, reuse))
	if slices.Equal(before, after) {
		t.Error("the sparsity changes nothing")
	}
	for layer := range 2 {
		if got, want := changed.table(layer), fresh.table(layer); !slices.Equal(got.Bits, want.Bits) {
			t.Errorf("layer %d keeps other columns", layer)
		}
		if got := changed.ctl.Layer(layer).Config().Sparsity; got != 0.9 {
			t.Errorf("layer %d has sparsity %v", layer, got)
		}
	}
	// A layer that comes later has the new one.
	if got := changed.ctl.Layer(2).Config().Sparsity; got != 0.9 {
		t.Errorf("a new layer has sparsity %v", got)
	}
}

// TestSetSparsityOfLayers: Layers is asked again, and its dense layers stay dense.
func TestSetSparsityOfLayers(t *testing.T) {
	change := 0
	ctl := newController(t, pulsecol.Config{Sparsity: 0.5, Layers: func(i int, l pulsecol.LayerConfig) pulsecol.LayerConfig {
		switch {
		case i == 0:
			l.Sparsity = 0
		case i == 1:
			l.Sparsity /= 2
		case change == 1:
			l.GroupSize = 3
		case change == 2:
			l.Sparsity = 0
		case change == 3:
			l.Sparsity = -1
		}
		return l
	}})
	ctl.Layer(2)
	if err := ctl.SetSparsity(0.8); err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0, 0.4, 0.8} {
		if got := ctl.Layer(i).Config().Sparsity; got != want {
			t.Errorf("layer %d has sparsity %v, want %v", i, got, want)
		}
	}
	for _, change = range []int{1, 2, 3} {
		if err := ctl.SetSparsity(0.6); !errors.Is(err, pulsecol.ErrConfig) || !strings.Contains(err.Error(), "layer 2") {
			t.Errorf("change %d: %v, want ErrConfig of layer 2", change, err)
		}
	}
	if got := ctl.Config().Sparsity; got != 0.8 {
		t.Errorf("after errors the sparsity is %v", got)
	}
	for want, err := range map[string]error{
		"1, want 0 < sparsity < 1":          ctl.SetSparsity(1),
		"0, want 0 < sparsity < 1":          ctl.SetSparsity(0),
		"NaN, want 0 < sparsity < 1":        ctl.SetSparsity(math.NaN()),
		"the Config's Sparsity is 0":        newController(t, pulsecol.Config{}).SetSparsity(0.5),
		"with Cache prefix the sparsity is": newController(t, pulsecol.Config{Sparsity: 0.5, Cache: pulsecol.PrefixCache}).SetSparsity(0.5),
	} {
		if !errors.Is(err, pulsecol.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrConfig with %q", err, want)
		}
	}
}

// TestEndless: a generation without a last step follows Every, and SetSchedule from step to
// step.
func TestEndless(t *testing.T) {
	a := attncase.Seeded(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 4, Schedule: pulsecol.Every{Steps: 3}}, 2, nil)
	if err := r.ctl.StartEndless(); err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		want := reuse
		if i%3 == 0 {
			want = refresh
		}
		r.step(a, want)
	}
	if done, total := r.ctl.Step(); done != 7 || total != 0 {
		t.Errorf("%d of %d steps, want 7 of 0", done, total)
	}
	for _, s := range []pulsecol.Schedule{nil, pulsecol.Uniform{}, pulsecol.Random{}, pulsecol.Power{}, pulsecol.Skip{}, pulsecol.Every{Steps: -1}, &pulsecol.Every{}} {
		if err := r.ctl.SetSchedule(s); !errors.Is(err, pulsecol.ErrConfig) {
			t.Errorf("SetSchedule(%v): %v, want ErrConfig", s, err)
		}
	}
	if got := r.ctl.Config().Schedule; got != (pulsecol.Every{Steps: 3}) {
		t.Errorf("after errors the schedule is %v", got)
	}
	for _, c := range []struct {
		s     pulsecol.Schedule
		modes []pulsecol.Mode // of steps from 8 on
	}{
		{pulsecol.Always{}, []pulsecol.Mode{refresh, refresh}},
		{pulsecol.Every{}, []pulsecol.Mode{reuse, refresh}}, // step 11
		{pulsecol.AlwaysDense{}, []pulsecol.Mode{denseStep, denseStep}},
		{pulsecol.Adaptive{}, []pulsecol.Mode{reuse, reuse}},
	} {
		if err := r.ctl.SetSchedule(c.s); err != nil {
			t.Fatal(err)
		}
		for _, m := range c.modes {
			r.step(a, m)
		}
	}
	r.ctl.Invalidate()
	r.step(a, refresh)
	if err := r.ctl.SetSchedule(pulsecol.Every{}); err != nil {
		t.Fatal(err)
	}
	r.start(1) // an end again
	r.step(a, refresh)
	if err := r.m.Step(); !errors.Is(err, pulsecol.ErrFinished) {
		t.Errorf("after the last step: %v", err)
	}
	if err := newController(t, pulsecol.Config{Sparsity: 0.5}).StartEndless(); !errors.Is(err, pulsecol.ErrConfig) || !strings.Contains(err.Error(), "want Every") {
		t.Errorf("a schedule by the total: %v", err)
	}
	for _, cfg := range []pulsecol.Config{{}, {Pattern: pulsecol.SlidingWindow{}}} {
		if err := newController(t, cfg).StartEndless(); err != nil {
			t.Errorf("%v, without refreshes: %v", cfg.Pattern, err)
		}
	}
}

// TestDriftOfLayers: layers without refreshes have no drift, and SetSchedule to Adaptive begins
// to measure it.
func TestDriftOfLayers(t *testing.T) {
	a, b := attncase.Seeded(1, small), attncase.Seeded(2, small)
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 4, Schedule: refreshOnce, Layers: func(i int, l pulsecol.LayerConfig) pulsecol.LayerConfig {
		if i == 0 {
			l.Pattern = pulsecol.SlidingWindow{Width: 2}
		}
		return l
	}}
	r := newRig(t, a, cfg, 2, nil)
	r.start(20)
	r.step(a, refresh)
	r.step(a, reuse)
	r.step(b, reuse)
	if got := r.ctl.Drift(); got != 0 {
		t.Errorf("drift %v without Adaptive", got)
	}
	if err := r.ctl.SetSchedule(pulsecol.Adaptive{Threshold: 0.01, Refreshes: 3}); err != nil {
		t.Fatal(err)
	}
	r.step(a, reuse) // the baseline
	r.step(b, reuse)
	if got := r.ctl.Drift(); got <= 0.01 {
		t.Errorf("drift %v after other inputs", got)
	}
	r.step(b, refresh)
}

// TestNoDriftOfWindows: patterns fixed by position have no drift.
func TestNoDriftOfWindows(t *testing.T) {
	a, b := attncase.Seeded(1, small), attncase.Seeded(2, small)
	cfg := pulsecol.Config{Sparsity: 0.5, Schedule: pulsecol.Adaptive{}, Layers: func(i int, l pulsecol.LayerConfig) pulsecol.LayerConfig {
		l.Pattern = pulsecol.SlidingWindow{Width: 2}
		return l
	}}
	r := newRig(t, a, cfg, 2, nil)
	r.start(3)
	for _, in := range []*kernel.Operands{a, b, a} {
		r.step(in, reuse)
		if got := r.ctl.Drift(); got != 0 {
			t.Errorf("drift %v", got)
		}
	}
}
