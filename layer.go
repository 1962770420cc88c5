package pulsecol

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol/internal/exec"
)

// Layer is the place of one attention layer in a model. Its path is part of the
// layer's operators' identity in the graph.
type Layer struct {
	ctl   *Controller
	path  string
	state *exec.State
	used  bool // an Attention was built on it

	cfg   LayerConfig // with the defaults filled in
	sel   exec.Selection
	group int
	err   error // of the Config's Layers
}

// LayerConfig are the settings that may differ from layer to layer; the fields of Config with
// these names are those of all layers.
type LayerConfig struct {
	Sparsity  float64 // 0: the layer is dense in every step, unless its Pattern ignores Sparsity
	GroupSize int
	Pattern   Pattern
}

// Precision returns that of the layer's controller, AutoPrecision for a nil layer.
func (l *Layer) Precision() Precision {
	if l == nil || l.ctl == nil {
		return AutoPrecision
	}
	return l.ctl.cfg.Precision
}

// Config returns the layer's settings with the defaults filled in; the zero value for a nil
// layer.
func (l *Layer) Config() LayerConfig {
	if l == nil {
		return LayerConfig{}
	}
	return l.cfg
}

// refreshes reports whether refreshes select the layer's keys.
func (l *Layer) refreshes() bool { return !l.sel.Unchanging() && l.cfg.Sparsity > 0 }

// maxLayers bounds the index of a layer; models have a few dozen.
const maxLayers = 1 << 16

// Layer returns attention layer i, 0 <= i < 65536. The same i gives the same
// layer. For any other i it returns nil, which Attention reports.
func (c *Controller) Layer(i int) *Layer {
	if i < 0 || i >= maxLayers {
		return nil
	}
	for n := len(c.layers); n <= i; n++ {
		path := fmt.Sprintf("%s.layers.%d.attention", c.cfg.Name, n)
		l := &Layer{ctl: c, path: path, state: exec.NewState(path, &c.step)}
		l.err = l.configure(n)
		if p, ok := l.cfg.Pattern.(Fixed); ok {
			if t := p.table(n); t != nil {
				l.state.Give((*exec.ColumnBits)(t))
			}
		}
		l.follow()
		c.observe(n, l.state)
		c.layers = append(c.layers, l)
	}
	return c.layers[i]
}

// configure sets the settings of layer i.
func (l *Layer) configure(i int) error {
	own, err := l.ctl.layerConfig(i, l.ctl.shared)
	if err != nil {
		return err
	}
	own = own.withDefaults()
	l.cfg = LayerConfig{own.Sparsity, own.GroupSize, own.Pattern}
	l.sel, l.group = own.Pattern.selection(own.Sparsity, own.GroupSize)
	return nil
}

// layerConfig returns the Config that layer i would have if it were that of all layers, given
// what they share.
func (c *Controller) layerConfig(i int, shared LayerConfig) (own Config, err error) {
	own = c.cfg
	if c.cfg.Layers != nil {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("%w: Layers panics for layer %d: %v", ErrConfig, i, r)
			}
		}()
		shared = c.cfg.Layers(i, shared)
	}
	own.Layers, own.Schedule = nil, nil // Adaptive may measure other layers
	own.Sparsity, own.GroupSize, own.Pattern = shared.Sparsity, shared.GroupSize, shared.Pattern
	if err := own.Validate(); err != nil {
		return own, fmt.Errorf("layer %d: %w", i, err)
	}
	return own, nil
}

// follow tells the layer's state what its settings mean for the modes of steps.
func (l *Layer) follow() {
	l.state.Follow(l.refreshes(), l.sel.Unchanging())
	if _, ok := l.ctl.cfg.Schedule.(adaptive); ok && l.refreshes() {
		l.state.Watch()
	}
}

// kinds reports whether refreshes select the keys of a layer in use, and whether one has keys
// that never change. Without a layer in use they are those of the Config.
func (c *Controller) kinds() (refreshes, unchanging bool) {
	used := false
	for _, l := range c.layers {
		if l.used {
			used = true
			refreshes = refreshes || l.refreshes()
			unchanging = unchanging || l.sel.Unchanging()
		}
	}
	if !used {
		return !c.sel.Unchanging() && c.cfg.Sparsity > 0, c.sel.Unchanging()
	}
	return refreshes, unchanging
}

// SetSparsity changes the sparsity of all layers from the next step on, which refreshes unless
// it is dense. Config.Layers, if there is one, is asked again, and may change nothing else;
// layers that are dense stay so. With a Cache, on a GPU and where the Config's Sparsity is 0
// it is an error, and so is a sparsity outside (0, 1). An error changes nothing. Start does not
// change the setting.
func (c *Controller) SetSparsity(sparsity float64) error {
	switch err := c.idle(); {
	case err != nil:
		return err
	case !(sparsity > 0 && sparsity < 1):
		return fmt.Errorf("pulsecol: SetSparsity: %w: %v, want 0 < sparsity < 1; SetDense switches sparse attention off", ErrConfig, sparsity)
	case c.shared.Sparsity == 0:
		return fmt.Errorf("pulsecol: SetSparsity: %w: the Config's Sparsity is 0, which is dense attention in every step", ErrConfig)
	case c.cfg.Cache != NoCache:
		return fmt.Errorf("pulsecol: SetSparsity: %w: with Cache %v the sparsity is that of the Config", ErrConfig, c.cfg.Cache)
	case c.cfg.Device == CUDA:
		return fmt.Errorf("pulsecol: SetSparsity: %w: on a GPU the sparsity is that of the Config", ErrConfig)
	}
	shared := c.shared
	shared.Sparsity = sparsity
	next := make([]Config, len(c.layers))
	for i, l := range c.layers {
		if l.err != nil {
			continue
		}
		own, err := c.layerConfig(i, shared)
		if err != nil {
			return fmt.Errorf("pulsecol: SetSparsity: %w", err)
		}
		next[i] = own.withDefaults()
		sel, group := next[i].Pattern.selection(next[i].Sparsity, next[i].GroupSize)
		was := l.sel
		if was.Sparsity = sel.Sparsity; was != sel || group != l.group || (next[i].Sparsity > 0) != (l.cfg.Sparsity > 0) {
			return fmt.Errorf("pulsecol: SetSparsity: %w: Layers gives layer %d %v in groups of %d with sparsity %v, before %v in groups of %d with %v; only the sparsity may change, and not from or to 0",
				ErrConfig, i, next[i].Pattern, group, next[i].Sparsity, l.cfg.Pattern, l.group, l.cfg.Sparsity)
		}
	}
	for i, l := range c.layers {
		if l.err == nil {
			l.cfg.Sparsity = next[i].Sparsity
			l.state.SetSparsity(next[i].Sparsity)
		}
	}
	c.shared, c.cfg.Sparsity = shared, sparsity
	c.Invalidate()
	return nil
}

// SetSchedule changes the schedule from the next step on; nil is Uniform{}. Columns stay until
// the new schedule refreshes them. It is an error where the schedule would be one in a Config,
// and, in an endless generation, for a schedule that needs a total. An error changes nothing.
func (c *Controller) SetSchedule(s Schedule) error {
	if err := c.idle(); err != nil {
		return err
	}
	next := c.cfg
	if next.Schedule = s; s == nil {
		next.Schedule = Uniform{}
	}
	errs := []error{next.Validate()}
	if c.total == endless {
		errs = append(errs, c.withoutTotal(next.Schedule))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("pulsecol: SetSchedule: %w", err)
	}
	c.cfg.Schedule = next.Schedule
	for _, l := range c.layers {
		l.follow()
	}
	return nil
}

// endless is the total of a generation without a last step.
const endless = -1

// withoutTotal returns why an endless generation cannot follow a schedule, or nil.
func (c *Controller) withoutTotal(s Schedule) error {
	if refreshes, _ := c.kinds(); !refreshes {
		return nil
	}
	switch s.(type) {
	case Uniform, Random, Power, Skip:
		return fmt.Errorf("%w: Schedule %v places refreshes by the total number of steps, and there is none; want Every, Always, AlwaysDense, Adaptive or one of your own", ErrConfig, s)
	}
	return nil
}

// left reports whether a step is left.
func (c *Controller) left() bool { return c.total == endless || c.done < c.total }

// inUse reports whether all layers in use hold to f.
func (c *Controller) inUse(f func(*Layer) bool) bool {
	return !slices.ContainsFunc(c.layers, func(l *Layer) bool { return l.used && !f(l) })
}
