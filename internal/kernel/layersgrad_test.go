package kernel_test

import (
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
)

// wide is x in float64.
func wide(x []float32) (y []float64) {
	for _, v := range x {
		y = append(y, float64(v))
	}
	return y
}

// TestGate compares the gate and its gradients with plain loops, also in place.
func TestGate(t *testing.T) {
	for _, n := range []int{1, 31, 32, 33, 1000, 1<<14 + 7} {
		r := attncase.Rand(uint64(n))
		gate, up, dy := attncase.Normal(r, n, 3), attncase.Normal(r, n, 1), attncase.Normal(r, n, 1)
		plain, want := ref.Gate(gate, up), ref.Gate(wide(gate), wide(up))
		plainGate, plainUp := ref.GateGrad(dy, gate, up)
		wantGate, wantUp := ref.GateGrad(wide(dy), wide(gate), wide(up))
		kernel.ForEachISA(t, func(t *testing.T) {
			y, intact := guarded(t, n)
			team.Gate(y, gate, up)
			compare(t, "Gate", y, plain, want)
			intact()
			y = slices.Clone(gate)
			team.Gate(y, y, up)
			compare(t, "Gate over the gate", y, plain, want)
			y = slices.Clone(up)
			team.Gate(y, gate, y)
			compare(t, "Gate over up", y, plain, want)
			dgate, dup := slices.Clone(gate), slices.Clone(up)
			team.GateGrad(dgate, dup, dy, dgate, dup)
			compare(t, "the gradient of gate, over gate", dgate, plainGate, wantGate)
			compare(t, "the gradient of up, over up", dup, plainUp, wantUp)
		})
	}
	// Far from zero the gate is 0 or the identity, and so are its gradients.
	gate, ones := []float32{-200, 200, 0}, []float32{1, 1, 1}
	y, dgate, dup := make([]float32, 3), make([]float32, 3), make([]float32, 3)
	team.Gate(y, gate, ones)
	team.GateGrad(dgate, dup, ones, gate, ones)
	around(t, "Gate", y, 0, 200, 0)
	around(t, "the gradient of gate", dgate, 0, 1, 0.5)
	around(t, "the gradient of up", dup, 0, 200, 0)
}

// TestRMSNormGrad: both gradients of one call, with more rows than a task has.
func TestRMSNormGrad(t *testing.T) {
	for _, s := range [][2]int{{1, 2}, {7, 33}, {70, 512}} {
		rows, n := s[0], s[1]
		r := attncase.Rand(uint64(n))
		dy, x, weight := attncase.Normal(r, rows*n, 1), attncase.Normal(r, rows*n, 1), attncase.Normal(r, n, 1)
		plainX, plainWeight := ref.RMSNormGrad(dy, x, weight, 1e-5)
		wantX, wantWeight := ref.RMSNormGrad(wide(dy), wide(x), wide(weight), 1e-5)
		dx, intact := guarded(t, rows*n)
		dweight, intactToo := guarded(t, n)
		team.RMSNormGrad(dx, dweight, dy, x, weight, 1e-5)
		compare(t, "dx", dx, plainX, wantX)
		compare(t, "dweight", dweight, plainWeight, wantWeight)
		intact()
		intactToo()
	}
	team.RMSNormGrad(nil, nil, nil, nil, nil, 0)
}

// TestCrossEntropyRange: logits far apart, and rows without a target.
func TestCrossEntropyRange(t *testing.T) {
	logits, targets := []float32{1000, -1000, 0, 0, 5, 5}, []int32{0, 1, -1}
	loss, grad := make([]float32, 3), make([]float32, 6)
	team.CrossEntropy(loss, logits, targets)
	around(t, "loss", loss, 0, 0.69314718, 0)
	team.CrossEntropyGrad(grad, []float32{1, 2, 3}, logits, targets)
	around(t, "gradient", grad, 0, 0, 1, -1, 0, 0)
	team.CrossEntropy(loss, logits, []int32{1, 1, -1})
	around(t, "loss of the other", loss, 2000, 0.69314718, 0)
}
