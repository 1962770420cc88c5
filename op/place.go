package op

import (
	"slices"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// place assigns an operator its output buffer and worker pool. The zero value allocates on
// every run and uses a private pool.
type place struct {
	placement exec.Placement
	cursor    exec.Cursor // of the run in progress
	ws        *Workspace  // with a planned result
	step      *exec.Step

	inputs [maxInputs]*tensor.Dense // of the run in progress, under a step
	made   [Reuse + 1]*exec.Held    // the result's tensor, by mode; making one allocates
	last   *tensor.Dense            // the same with a kept result
}

// maxInputs is the number of inputs of attention's gradient: q, k, v, columns, rows, padding
// mask and the gradient of the output.
const maxInputs = 7

// OnGPU is false: the operators of this package take memory of the host.
func (p *place) OnGPU() bool { return false }

// Placement is where the operator's part of its graph's memory plan is kept.
func (p *place) Placement() *exec.Placement { return &p.placement }

// PlanMemory asks for the result's memory.
func (p *place) PlanMemory(r *exec.Run) error {
	if !r.Planned() {
		return nil
	}
	return r.Result(resultBytes(r))
}

// resultBytes is the size of a float32 result.
func resultBytes(r *exec.Run) int64 { return 4 * int64(r.Shape().TotalSize()) }

func (p *place) setWorkspace(w *Workspace) { p.ws = w }

// Bind makes s compute the operator.
func (p *place) Bind(s *exec.Step) { p.step = s }

// BoundTo returns the step that computes the operator.
func (p *place) BoundTo() *exec.Step { return p.step }

// StepMode returns the mode of the operator's step.
func (p *place) StepMode() (m Mode, known bool) {
	if p.step == nil {
		return Dense, false
	}
	_, m, _ = p.step.Current()
	return m, true
}

// findMemory finds the memory that is planned for a run.
func (p *place) findMemory() (err error) {
	if p.placement.Plan() != nil {
		p.cursor, err = p.placement.Start(exec.ModeOf(p))
	}
	return err
}

// team returns the operator's worker pool.
func (p *place) team() *kernel.Team {
	if p.step != nil {
		return p.step.Team()
	}
	return new(kernel.Team)
}

// result returns a tensor for the operator's result, with any contents.
func (p *place) result(shape ...int) (tensor.Tensor, []float32, error) {
	if !p.placement.PlannedResult() {
		data := make([]float32, tensor.Shape(shape).TotalSize())
		return wrap(data, slices.Clone(shape)...), data, nil
	}
	return p.take(exec.KindResult, shape)
}

// take returns the next slot of the plan as a tensor.
func (p *place) take(kind exec.Kind, shape []int) (tensor.Tensor, []float32, error) {
	data, err := p.takeMemory(kind, tensor.Shape(shape).TotalSize())
	if err != nil {
		return nil, nil, err
	}
	return p.tensor(data, shape), data, nil
}

// takeMemory returns the next slot of the plan.
func (p *place) takeMemory(kind exec.Kind, elements int) ([]float32, error) {
	slot, err := p.cursor.Next(kind, 4*int64(elements))
	if err != nil {
		return nil, err
	}
	return p.ws.at(p.placement.Plan(), slot, elements), nil
}

// tensor returns data as the operator's result, which is one tensor for all steps of a mode.
func (p *place) tensor(data []float32, shape []int) tensor.Tensor {
	if p.placement.KeptResult() {
		return p.keptTensor(data, shape)
	}
	made := &p.made[exec.ModeOf(p)]
	if t := *made; t == nil || !isTensorOf(t.Dense, data, shape) {
		*made = &exec.Held{Dense: wrap(data, slices.Clone(shape)...)}
	}
	return *made
}

// keptTensor is tensor for a result that has one place for all runs. Its readers may expect
// a *tensor.Dense, so it makes a new one after UnbindAllNonInputs: see exec.Held.
func (p *place) keptTensor(data []float32, shape []int) *tensor.Dense {
	if p.last == nil || p.placement.Node().Value() != gorgonia.Value(p.last) || !isTensorOf(p.last, data, shape) {
		p.last = wrap(data, slices.Clone(shape)...)
	}
	return p.last
}

// release empties the result's tensors, which other memory replaces.
func (p *place) release(kept bool) {
	switch {
	case !kept:
		for mode, t := range p.made {
			if t != nil {
				exec.Empty(t.Dense)
				p.made[mode] = nil
			}
		}
	case p.last != nil:
		exec.Empty(p.last)
		p.last = nil
	}
}

func isTensorOf(t *tensor.Dense, data []float32, shape []int) bool {
	return !t.RequiresIterator() && sameShape(t.Shape(), shape) && &float32s(t)[0] == &data[0]
}

// resultInPlace is result for an operator that may write over an input of the result's
// shape, if planInPlace has found such an input.
func (p *place) resultInPlace(shape ...int) (tensor.Tensor, []float32, error) {
	if p.cursor.Is(exec.KindInPlace) {
		return p.take(exec.KindInPlace, shape)
	}
	return p.result(shape...)
}

// planInPlace is PlanMemory for an operator that may write over any of its inputs, which
// have the result's shape.
func (p *place) planInPlace(r *exec.Run) error {
	for i := range r.Inputs() {
		if r.InPlace(i) {
			return nil
		}
	}
	return p.PlanMemory(r)
}

// wrap makes a tensor around data without copying it.
func wrap(data []float32, shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
}

// planned is an operator of this package.
type planned interface {
	exec.Operator
	setWorkspace(*Workspace)
}
