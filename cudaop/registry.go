//go:build cuda

package cudaop

import (
	"fmt"
	"reflect"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// implementation is the CUDA half of an operator.
type implementation interface {
	// shape returns an error for shapes that the operator accepts and the kernels do not support.
	shape(in []tensor.Shape) error
	// ownsResult reports whether the result never belongs to the machine.
	ownsResult() bool
	// run queues the work, or plans its memory. It runs in the device's context.
	run(c *call) (gorgonia.Value, error)
}

// layerOp is embedded by implementations that take all shapes and whose results may belong
// to the machine.
type layerOp struct{}

func (layerOp) shape([]tensor.Shape) error { return nil }
func (layerOp) ownsResult() bool           { return false }

// implementations are the constructors of implementations, by the type of Spec.
var implementations = map[reflect.Type]func(spec any) (implementation, error){}

// register makes f the constructor for operators with a Spec of type S. Each operator's file
// registers its own.
func register[S any](f func(S) (implementation, error)) {
	implementations[reflect.TypeFor[S]()] = func(spec any) (implementation, error) { return f(spec.(S)) }
}

// implement returns the CUDA implementation of an operator of package op.
func implement(o gorgonia.Op) (exec.Operator, implementation, error) {
	inner, ours := o.(exec.Operator)
	_, onGPU := o.(exec.DeviceOp)
	f := implementations[reflect.TypeOf(exec.SpecOf(o))]
	if !ours || onGPU || f == nil {
		return nil, nil, fmt.Errorf("%w: a %T has no CUDA implementation", op.ErrValue, o)
	}
	impl, err := f(inner.Spec())
	return inner, impl, err
}
