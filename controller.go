package pulsecol

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// Errors that callers may test for with errors.Is.
var (
	// ErrNotStarted: a step without Start.
	ErrNotStarted = errors.New("pulsecol: no generation in progress; call Controller.Start")
	// ErrFinished: a step after the last of the generation.
	ErrFinished = errors.New("pulsecol: all steps of the generation are done; call Controller.Start")
	// ErrAttached: the controller has a machine already.
	ErrAttached = errors.New("pulsecol: the controller is attached to another machine")
	// ErrClosed: the controller or machine was closed.
	ErrClosed = errors.New("pulsecol: closed")
	// ErrBusy: the machine is in the middle of a step.
	ErrBusy = errors.New("pulsecol: a step is in progress")
	// ErrRanOnce: a second step on one Lisp machine.
	ErrRanOnce = errors.New("pulsecol: a Lisp machine runs its graph once; close it and attach a new one for the next step")
	// ErrStale: there are no columns yet, or an error interrupted their refresh.
	ErrStale = op.ErrStale
	// ErrOwner: the graph has layers of another controller.
	ErrOwner = op.ErrOwner
	// ErrMemory: the GPU has too little memory.
	ErrMemory = cudaop.ErrMemory
)

// Controller is the state of one generation: it determines the mode of each step and
// holds the column tables of all layers, and with a Cache their keys and values. It
// belongs to one machine, or to one for each graph that has its layers, as for other lengths
// and numbers of rows. One of them runs at a time. A graph has one controller: NewMachine
// returns ErrOwner for layers of another, and Config.Layers is for settings that differ. It is
// not safe for concurrent use.
type Controller struct {
	cfg    Config
	shared LayerConfig // settings of all layers, as the Config has them
	sel    exec.Selection
	group  int
	auto   bool // the Config left the device open
	layers []*Layer
	step   exec.Step

	total, done  int // steps of the generation, or endless; completed ones
	lastMode     Mode
	dense        bool // sparse attention is switched off
	mustRefresh  bool // before the next reuse, or with a cache at the next prefill
	modes        [op.Reuse + 1]int
	refreshSteps []int
	lost         []float64 // attention that moved off each group's columns, summed over layers
	machines     []*Machine
	running      atomic.Bool // a step, or a copy of weights
	closed       bool

	// With a cache:
	block    Block // that is active, if there was one
	blocks   int   // so far
	previous int   // first active row of the block before
	opened   bool  // the active block has had a step
	filled   bool  // the cache, by a prefill
	passes   [exec.BlockStep + 1]int
}

// NewController returns the controller of a generation under c, which must be
// valid.
func NewController(c Config) (*Controller, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	auto, shared := c.Device == Auto, LayerConfig{c.Sparsity, c.GroupSize, c.Pattern}
	c = c.withDefaults()
	sel, group := c.Pattern.selection(c.Sparsity, c.GroupSize)
	ctl := &Controller{cfg: c, shared: shared, sel: sel, group: group, auto: auto}
	ctl.step.Name = c.Name
	ctl.step.Limit(c.Threads)
	return ctl, nil
}

// Config returns the configuration with the defaults filled in.
func (c *Controller) Config() Config { return c.cfg }

// DeviceFor returns where attention with the given head dimension runs: on the
// Config's Device, which must support it, or for Auto on the GPU if there is one and its
// operators support it.
func (c *Controller) DeviceFor(headDim int) Device {
	if c.auto && gpu.CheckHeadDim(headDim) != nil {
		return CPU
	}
	return c.cfg.Device
}

// PrecisionFor returns what products are rounded to around attention with the given
// head dimension: the Config's Precision, or for AutoPrecision that of the device.
func (c *Controller) PrecisionFor(headDim int) Precision {
	switch {
	case c.cfg.Precision != AutoPrecision:
		return c.cfg.Precision
	case c.DeviceFor(headDim) == CUDA:
		return BFloat16
	}
	return Float32
}

// Start begins a generation of totalSteps denoising steps: the next step is step
// 1, and all column tables and caches are dropped. Memory, the Stats of layers and the setting
// of SetDense are kept.
func (c *Controller) Start(totalSteps int) error {
	switch err := c.idle(); {
	case err != nil:
		return err
	case totalSteps < 1:
		return fmt.Errorf("pulsecol: Start: %d steps, want at least 1", totalSteps)
	}
	c.start(totalSteps)
	return nil
}

// StartEndless is Start of a generation without a last step, as training is one. Its schedule
// does not depend on the total, as Every; those that place refreshes by it are an error, unless
// no layer refreshes.
func (c *Controller) StartEndless() error {
	if err := c.idle(); err != nil {
		return err
	}
	if err := c.withoutTotal(c.cfg.Schedule); err != nil {
		return fmt.Errorf("pulsecol: StartEndless: %w", err)
	}
	c.start(endless)
	return nil
}

// idle returns an error if the controller is closed or in a step.
func (c *Controller) idle() error {
	switch {
	case c.closed:
		return ErrClosed
	case c.running.Load():
		return ErrBusy
	}
	return nil
}

func (c *Controller) start(total int) {
	c.total, c.done = total, 0
	c.mustRefresh = false
	c.modes = [op.Reuse + 1]int{}
	c.refreshSteps = nil
	c.blocks, c.opened, c.filled = 0, false, false
	c.passes = [exec.BlockStep + 1]int{}
	for _, l := range c.layers {
		l.state.Invalidate()
	}
}

// SetDense switches sparse attention off (true) or back on (false), from the
// next step on. Steps are counted while it is off. If the schedule had a refresh in that
// time, the first sparse step refreshes instead. Start does not change the setting.
func (c *Controller) SetDense(dense bool) { c.dense = dense }

// Invalidate makes the next sparse step a refresh. With a cache the next step, sparse or
// not, is a prefill.
func (c *Controller) Invalidate() { c.mustRefresh, c.filled = true, false }

// Step returns the number of completed steps and the total, 0 in an endless
// generation.
func (c *Controller) Step() (done, total int) { return c.done, max(0, c.total) }

// Mode returns the mode of the next step. It is Dense when no step is left, and where the
// schedule panics or gives no mode, which is an error of the step.
func (c *Controller) Mode() Mode {
	if !c.left() {
		return Dense
	}
	m, _, err := c.next()
	if err != nil {
		return Dense
	}
	return m
}

// LastMode returns the mode of the latest step.
func (c *Controller) LastMode() Mode { return c.lastMode }

// next returns the mode of the next step and, with a cache, which rows it computes.
func (c *Controller) next() (Mode, exec.Pass, error) {
	if c.cfg.Cache != NoCache {
		return c.nextCached()
	}
	m, err := c.configured(c.done + 1)
	if refreshes, _ := c.kinds(); err == nil && m == Reuse && refreshes && (c.mustRefresh || !c.built() || c.drifted(c.done+1)) {
		m = Refresh
	}
	return m, exec.Pass{}, err
}

// configured is the mode of a step whatever the steps before have left.
func (c *Controller) configured(step int) (Mode, error) {
	switch refreshes, unchanging := c.kinds(); {
	case c.dense || !refreshes && !unchanging:
		return Dense, nil
	case !refreshes:
		return Reuse, nil
	}
	return c.scheduled(step)
}

// scheduled returns the schedule's mode for a step. The schedule may be the caller's: its
// panic is an error, and so is a value that is no mode.
func (c *Controller) scheduled(step int) (m Mode, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: Schedule %T panics in %s: %v", ErrConfig, c.cfg.Schedule, c.stepName(step), r)
		}
	}()
	if m = c.cfg.Schedule.Mode(step, c.steps()); m > Reuse {
		return m, fmt.Errorf("%w: Schedule %v gives %v for %s", ErrConfig, c.cfg.Schedule, m, c.stepName(step))
	}
	return m, nil
}

// steps is the total for schedules.
func (c *Controller) steps() int {
	if c.total == endless {
		return math.MaxInt
	}
	return c.total
}

// stepName names a step in errors.
func (c *Controller) stepName(step int) string {
	if c.total == endless {
		return fmt.Sprintf("step %d", step)
	}
	return fmt.Sprintf("step %d of %d", step, c.total)
}

// drifted reports whether an adaptive schedule refreshes in a step.
func (c *Controller) drifted(step int) bool {
	s, ok := c.cfg.Schedule.(adaptive)
	return ok && s.due(step, c.steps(), c.modes[Refresh], c.Drift())
}

// Drift is the share of attention that has moved away from the columns since the first
// reuse step after their refresh: the mean over heads and layers, of the query group with
// the largest. It is measured under the schedule Adaptive, or one that
// embeds it, and 0 otherwise.
func (c *Controller) Drift() float64 {
	c.lost = c.lost[:0]
	layers := 0
	for _, l := range c.layers {
		lost := l.state.Drift()
		if len(lost) == 0 {
			continue
		}
		layers++
		c.lost = append(c.lost, make([]float64, max(0, len(lost)-len(c.lost)))...)
		for i, x := range lost {
			c.lost[i] += float64(x)
		}
	}
	most := 0.0
	for _, x := range c.lost {
		most = max(most, x/float64(layers))
	}
	return most
}

// built reports whether every layer in use that refreshes has columns.
func (c *Controller) built() bool {
	return c.inUse(func(l *Layer) bool { return !l.refreshes() || l.state.Built() })
}

// begin starts the next step. ctx may cancel it.
func (c *Controller) begin(ctx context.Context) error {
	switch {
	case c.closed:
		return ErrClosed
	case c.total == 0:
		return ErrNotStarted
	case !c.left():
		return fmt.Errorf("%w (%d of %d)", ErrFinished, c.done, c.total)
	}
	m, pass, err := c.next()
	if err != nil {
		return err
	}
	c.lastMode = m
	c.step.BeginPass(ctx, m, pass)
	return nil
}

// end finishes the step. A failed step does not count. After a failed refresh some layers
// have new columns and some old ones, so all are dropped.
func (c *Controller) end(failed error) error {
	c.step.End()
	if failed == nil {
		for _, l := range c.layers {
			if l.used && !l.state.Ran() {
				failed = fmt.Errorf("pulsecol: %s did not run in this step; is it in the machine's graph?", l.path)
			}
		}
	}
	if c.cfg.Cache != NoCache {
		c.endCached(failed != nil)
	}
	for _, l := range c.layers {
		l.state.EndStep(failed == nil)
	}
	if failed != nil {
		if c.lastMode == Refresh {
			for _, l := range c.layers {
				l.state.Invalidate()
			}
		}
		return failed
	}
	c.done++
	c.modes[c.lastMode]++
	switch c.lastMode {
	case Refresh:
		c.mustRefresh = false
		c.refreshSteps = append(c.refreshSteps, c.done)
	case Dense, Reuse: // a refresh that fell due waits: attention is off, or the step was no prefill
		if c.dense || c.cfg.Cache != NoCache && !c.sel.Unchanging() {
			m, err := c.scheduled(c.done)
			c.mustRefresh = c.mustRefresh || m == Refresh || err != nil
		}
	}
	return nil
}

// Modes returns the modes that steps under c can have, including Dense.
func (c *Controller) Modes() []Mode {
	_, never := c.cfg.Schedule.(AlwaysDense)
	switch refreshes, unchanging := c.kinds(); {
	case unchanging && !refreshes:
		return []Mode{Dense, Reuse}
	case never || !refreshes:
		return []Mode{Dense}
	}
	return []Mode{Dense, Refresh, Reuse}
}

// ColumnBytes returns, before anything runs, the bytes that the column tables of a
// generation under c will take in g, other than those of the pattern Fixed.
func (c *Controller) ColumnBytes(g *gorgonia.ExprGraph) (bytes int64) {
	if g == nil || !slices.Contains(c.Modes(), Reuse) {
		return 0
	}
	for _, n := range g.AllNodes() {
		if spec, ok := exec.SpecOf(n.Op()).(exec.GroupTopK); ok && spec.State.ModeIn(Reuse) == Reuse {
			bytes += spec.TableBytes(n.Shape())
		}
	}
	return bytes
}

// Close drops the column tables. The controller cannot be used afterwards. A second
// Close does nothing.
func (c *Controller) Close() error {
	if c.running.Load() {
		return ErrBusy
	}
	c.closed = true
	var errs []error
	for _, l := range c.layers {
		errs = append(errs, l.state.Free())
	}
	return errors.Join(errs...)
}
