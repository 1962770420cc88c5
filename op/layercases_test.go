package op_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// layerCase is a layer at random sizes, and what its gradients are checked against. The values
// of inputs that are not float32 are nil.
type layerCase struct {
	op      gorgonia.Op
	in      []*tensor.Dense
	forward func(in [][]float64) []float64                 // the layer by its definition
	plain   func(dy []float32, in [][]float32) [][]float32 // its gradients as plain loops in float32
	ignored func(dy []float32)                             // clears the gradients of undefined results; may be nil

	// terms is the largest term of a gradient that may be a difference of larger terms; nil
	// for other layers.
	terms func(dy []float32, in [][]float32) float64
}

// layerCases draw a case of each layer with gradients. The key is its kind in errors.
var layerCases = map[string]func(t *testing.T, r *rand.Rand) layerCase{
	"Add": func(t *testing.T, r *rand.Rand) layerCase {
		s := tokens(r)
		return layerCase{
			op: op.NewAdd("o"), in: []*tensor.Dense{drawn(r, s...), drawn(r, s...)},
			forward: func(in [][]float64) []float64 { return sum(in[0], in[1]) },
			plain:   func(dy []float32, in [][]float32) [][]float32 { return [][]float32{dy, dy} },
		}
	},
	"AddBias": func(t *testing.T, r *rand.Rand) layerCase {
		s := tokens(r)
		d := s[2]
		return layerCase{
			op: op.NewAddBias("o"), in: []*tensor.Dense{drawn(r, s...), drawn(r, d)},
			forward: func(in [][]float64) []float64 { return sum(in[0], in[1]) },
			plain: func(dy []float32, in [][]float32) [][]float32 {
				total := make([]float32, d)
				for i, x := range dy {
					total[i%d] += x
				}
				return [][]float32{dy, total}
			},
		}
	},
	"Linear":    func(t *testing.T, r *rand.Rand) layerCase { return linearCase(t, r, false) },
	"AddLinear": func(t *testing.T, r *rand.Rand) layerCase { return linearCase(t, r, true) },
	"TrainedLinear": func(t *testing.T, r *rand.Rand) layerCase {
		s, out := tokens(r), features(r)
		scale := []float32{1, 0.25}[r.IntN(2)]
		return layerCase{
			op: op.NewTrainedLinear("o", float64(scale)), in: []*tensor.Dense{drawn(r, s...), drawn(r, out, s[2])},
			forward: func(in [][]float64) []float64 { return scaled(ref.Product(in[0], in[1], s[2]), float64(scale)) },
			plain: func(dy []float32, in [][]float32) [][]float32 {
				dx, dw := ref.ProductGrad(scaled(dy, scale), in[0], in[1], s[2])
				return [][]float32{dx, dw}
			},
		}
	},
	"LMHead": func(t *testing.T, r *rand.Rand) layerCase {
		rows, d, vocab := selected(r, 6), features(r), features(r)
		w, values := constant(t, r, vocab, d)
		c := headCase(rows, d, vocab)
		c.op, c.in = op.NewLMHead("o", w), []*tensor.Dense{drawn(r, 1, len(rows), d), dense(rows, len(rows))}
		forward, plain := c.forward, c.plain
		c.forward = func(in [][]float64) []float64 { return forward([][]float64{in[0], nil, floats(values)}) }
		c.plain = func(dy []float32, in [][]float32) [][]float32 {
			return plain(dy, [][]float32{in[0], nil, values})[:2]
		}
		return c
	},
	"TrainedLMHead": func(t *testing.T, r *rand.Rand) layerCase {
		rows, d, vocab := selected(r, 6), features(r), features(r)
		c := headCase(rows, d, vocab)
		c.op = op.NewTrainedLMHead("o")
		c.in = []*tensor.Dense{drawn(r, 1, len(rows), d), dense(rows, len(rows)), drawn(r, vocab, d)}
		return c
	},
	"RMSNorm": func(t *testing.T, r *rand.Rand) layerCase {
		s := tokens(r)
		weight := attncase.Normal(r, s[2], 1)
		return layerCase{
			op: op.NewRMSNorm("o", weight, 1e-5), in: []*tensor.Dense{drawn(r, s...)},
			forward: func(in [][]float64) []float64 { return ref.RMSNorm(in[0], floats(weight), 1e-5) },
			plain: func(dy []float32, in [][]float32) [][]float32 {
				dx, _ := ref.RMSNormGrad(dy, in[0], weight, 1e-5)
				return [][]float32{dx}
			},
			terms: func(dy []float32, in [][]float32) float64 { return normTerms(dy, in[0], weight) },
		}
	},
	"TrainedRMSNorm": func(t *testing.T, r *rand.Rand) layerCase {
		s := tokens(r)
		return layerCase{
			op: op.NewTrainedRMSNorm("o", 1e-5), in: []*tensor.Dense{drawn(r, s...), drawn(r, s[2])},
			forward: func(in [][]float64) []float64 { return ref.RMSNorm(in[0], in[1], 1e-5) },
			plain: func(dy []float32, in [][]float32) [][]float32 {
				dx, dw := ref.RMSNormGrad(dy, in[0], in[1], 1e-5)
				return [][]float32{dx, dw}
			},
			terms: func(dy []float32, in [][]float32) float64 { return normTerms(dy, in[0], in[1]) },
		}
	},
	"RoPE": func(t *testing.T, r *rand.Rand) layerCase {
		b, n := 1+r.IntN(2), 1+r.IntN(5)
		h := kernel.Heads{First: r.IntN(3), Count: 1 + r.IntN(3), Dim: 2 * (1 + r.IntN(9))}
		width := (h.First + h.Count + r.IntN(2)) * h.Dim
		pos := make([]int32, b*n)
		for i := range pos {
			pos[i] = int32(r.IntN(300))
		}
		return layerCase{
			op: must(op.NewRoPE("o", op.Heads(h), 1e4))(t), in: []*tensor.Dense{drawn(r, b, n, width), dense(pos, b, n)},
			forward: func(in [][]float64) []float64 { return ref.RoPE(in[0], pos, n, width, h, 1e4) },
			plain: func(dy []float32, in [][]float32) [][]float32 {
				return [][]float32{ref.RoPEGrad(dy, pos, b*n, n, width, h, 1e4), nil}
			},
		}
	},
	"SplitHeads": func(t *testing.T, r *rand.Rand) layerCase {
		b, n := 1+r.IntN(2), 1+r.IntN(5)
		h := op.Heads{First: r.IntN(3), Count: 1 + r.IntN(3), Dim: 1 + r.IntN(9)}
		width := (h.First + h.Count + r.IntN(2)) * h.Dim
		c := movedCase(headPlaces(b, n, width, h))
		c.op, c.in = must(op.NewSplitHeads("o", h))(t), []*tensor.Dense{drawn(r, b, n, width)}
		return c
	},
	"MergeHeads": func(t *testing.T, r *rand.Rand) layerCase {
		b, n, h := 1+r.IntN(2), 1+r.IntN(5), op.Heads{Count: 1 + r.IntN(4), Dim: 1 + r.IntN(9)}
		split := headPlaces(b, n, h.Count*h.Dim, h)
		merged := make([]int, len(split))
		for to, from := range split {
			merged[from] = to
		}
		c := movedCase(merged)
		c.op, c.in = op.NewMergeHeads("o"), []*tensor.Dense{drawn(r, b, h.Count, n, h.Dim)}
		return c
	},
	"GatherRows": func(t *testing.T, r *rand.Rand) layerCase {
		s := tokens(r)
		rows := selected(r, s[0]*s[1])
		c := movedCase(rowPlaces(rows, s[2]))
		c.op, c.in = op.NewGatherRows("o"), []*tensor.Dense{drawn(r, s...), dense(rows, len(rows))}
		return c
	},
	"TrainedEmbed": func(t *testing.T, r *rand.Rand) layerCase {
		b, n, vocab, d := 1+r.IntN(2), 1+r.IntN(6), 1+r.IntN(5), 1+r.IntN(9)
		ids := make([]int32, b*n)
		for i := range ids {
			ids[i] = int32(r.IntN(vocab))
		}
		inner := movedCase(rowPlaces(ids, d))
		return layerCase{
			op: op.NewTrainedEmbed("o"), in: []*tensor.Dense{dense(ids, b, n), drawn(r, vocab, d)},
			forward: func(in [][]float64) []float64 { return inner.forward(in[1:]) },
			plain: func(dy []float32, in [][]float32) [][]float32 {
				return [][]float32{nil, inner.plain(dy, in[1:])[0]}
			},
		}
	},
	"SwiGLU": func(t *testing.T, r *rand.Rand) layerCase {
		s, out := tokens(r), features(r)
		gate, up := projection(t, r, out, s[2]), projection(t, r, out, s[2])
		return layerCase{
			op: must(op.NewSwiGLU("o", gate.Projection, up.Projection))(t), in: []*tensor.Dense{drawn(r, s...)},
			forward: func(in [][]float64) []float64 {
				return ref.Gate(sum(ref.Product(in[0], floats(gate.weight), s[2]), floats(gate.bias)), sum(ref.Product(in[0], floats(up.weight), s[2]), floats(up.bias)))
			},
			plain: func(dy []float32, in [][]float32) [][]float32 {
				dgate, dup := ref.GateGrad(dy, sum(ref.Product(in[0], gate.weight, s[2]), gate.bias), sum(ref.Product(in[0], up.weight, s[2]), up.bias))
				a, _ := ref.ProductGrad(dgate, in[0], gate.weight, s[2])
				b, _ := ref.ProductGrad(dup, in[0], up.weight, s[2])
				return [][]float32{sum(a, b)}
			},
		}
	},
	"Gate": func(t *testing.T, r *rand.Rand) layerCase {
		s := tokens(r)
		return layerCase{
			op: op.NewGate("o"), in: []*tensor.Dense{drawn(r, s...), drawn(r, s...)},
			forward: func(in [][]float64) []float64 { return ref.Gate(in[0], in[1]) },
			plain: func(dy []float32, in [][]float32) [][]float32 {
				a, b := ref.GateGrad(dy, in[0], in[1])
				return [][]float32{a, b}
			},
		}
	},
	"CrossEntropy": func(t *testing.T, r *rand.Rand) layerCase {
		vocab := features(r)
		targets := selected(r, vocab)
		return layerCase{
			op: op.NewCrossEntropy("o"), in: []*tensor.Dense{drawn(r, len(targets), vocab), dense(targets, len(targets))},
			forward: func(in [][]float64) []float64 { return ref.CrossEntropy(in[0], targets) },
			plain: func(dy []float32, in [][]float32) [][]float32 {
				return [][]float32{ref.CrossEntropyGrad(dy, in[0], targets), nil}
			},
		}
	},
}

// tokens is a random shape [B,N,D].
func tokens(r *rand.Rand) []int { return []int{1 + r.IntN(2), 1 + r.IntN(6), features(r)} }

// features is a size up to 40, most often a small one.
func features(r *rand.Rand) int { return 1 + r.IntN(1+r.IntN(40)) }

func drawn(r *rand.Rand, shape ...int) *tensor.Dense {
	return dense(attncase.Normal(r, tensor.Shape(shape).TotalSize(), 1), shape...)
}

// selected are up to 8 numbers below n, or -1 for none.
func selected(r *rand.Rand, n int) []int32 {
	rows := make([]int32, 1+r.IntN(8))
	for i := range rows {
		rows[i] = int32(r.IntN(n+1)) - 1
	}
	return rows
}

// constant is a weight of a random storage type, and its values.
func constant(t *testing.T, r *rand.Rand, rows, cols int) (op.Weight, []float32) {
	w := weight(t, rows, cols, attncase.Normal(r, rows*cols, 1))
	if r.IntN(2) == 0 {
		for i := range w.Data { // the upper halves of float32 are bfloat16
			if i%4 >= 2 {
				w.Data[i/4*2+i%4-2] = w.Data[i]
			}
		}
		w = must(op.NewWeight(rows, cols, op.BF16, w.Data[:len(w.Data)/2]))(t)
	}
	values, m := make([]float32, rows*cols), kernel.Matrix(w)
	for i := range rows {
		m.Row(values[i*cols:][:cols], i)
	}
	return w, values
}

// normTerms is the largest weight dy r, of which RMSNorm's gradient is a difference.
func normTerms(dy, x, weight []float32) (most float64) {
	inverse := ref.RMSNorm(x, slices.Repeat([]float32{1}, len(weight)), 1e-5) // x r
	for i := range x {
		if x[i] != 0 {
			most = max(most, math.Abs(float64(weight[i%len(weight)]*dy[i]*inverse[i]/x[i])))
		}
	}
	return most
}

type constantProjection struct {
	op.Projection
	weight, bias []float32 // the bias is zero without one
}

func projection(t *testing.T, r *rand.Rand, out, in int) (p constantProjection) {
	p.Weight, p.weight = constant(t, r, out, in)
	p.bias = make([]float32, out)
	if r.IntN(2) == 0 {
		p.Bias = attncase.Normal(r, out, 1)
		p.bias = p.Bias
	}
	return p
}

// linearCase has one to three projections.
func linearCase(t *testing.T, r *rand.Rand, residual bool) layerCase {
	s := tokens(r)
	var parts []op.Projection
	var weight, bias []float32
	for range 1 + r.IntN(3) {
		p := projection(t, r, 1+r.IntN(20), s[2])
		parts, weight, bias = append(parts, p.Projection), append(weight, p.weight...), append(bias, p.bias...)
	}
	c := layerCase{
		op: must(op.NewLinear("o", parts...))(t), in: []*tensor.Dense{drawn(r, s...)},
		forward: func(in [][]float64) []float64 {
			y := sum(ref.Product(in[0], floats(weight), s[2]), floats(bias))
			if residual {
				y = sum(y, in[1])
			}
			return y
		},
		plain: func(dy []float32, in [][]float32) [][]float32 {
			dx, _ := ref.ProductGrad(dy, in[0], weight, s[2])
			return [][]float32{dx, dy}[:len(in)]
		},
	}
	if residual {
		c.op, c.in = must(op.NewAddLinear("o", parts...))(t), append(c.in, drawn(r, s[0], s[1], len(bias)))
	}
	return c
}

// headCase is a head with inputs x, rows and the weight [vocab,d].
func headCase(rows []int32, d, vocab int) layerCase {
	ignored := func(dy []float32) {
		for i, at := range rows {
			if at < 0 {
				clear(dy[i*vocab:][:vocab])
			}
		}
	}
	return layerCase{
		forward: func(in [][]float64) []float64 { return ref.Product(in[0], in[2], d) },
		plain: func(dy []float32, in [][]float32) [][]float32 {
			dx, dw := ref.ProductGrad(dy, in[0], in[2], d)
			return [][]float32{dx, nil, dw}
		},
		ignored: ignored,
	}
}

// headPlaces says which element of x [B,N,width] each element of [B,Count,N,Dim] is.
func headPlaces(b, n, width int, h op.Heads) (from []int) {
	for i := range b {
		for head := range h.Count {
			for token := range n {
				for d := range h.Dim {
					from = append(from, (i*n+token)*width+(h.First+head)*h.Dim+d)
				}
			}
		}
	}
	return from
}

// rowPlaces are the elements of rows of d.
func rowPlaces(rows []int32, d int) (from []int) {
	for _, at := range rows {
		for i := range d {
			from = append(from, max(-1, int(at)*d+i))
			if at < 0 {
				from[len(from)-1] = -1
			}
		}
	}
	return from
}

// movedCase has for element i of the result element from[i] of the first input, 0 for -1.
func movedCase(from []int) layerCase {
	return layerCase{
		forward: func(in [][]float64) []float64 {
			y := make([]float64, len(from))
			for i, at := range from {
				if at >= 0 {
					y[i] = in[0][at]
				}
			}
			return y
		},
		plain: func(dy []float32, in [][]float32) [][]float32 {
			dx := make([]float32, len(in[0]))
			for i, at := range from {
				if at >= 0 {
					dx[at] += dy[i]
				}
			}
			return [][]float32{dx, nil}[:len(in)]
		},
	}
}

// sum is a + b, b repeated as often as it takes.
func sum[F ref.Float](a, b []F) []F {
	y := slices.Clone(a)
	for i := range y {
		y[i] += b[i%len(b)]
	}
	return y
}

func scaled[F ref.Float](x []F, by F) []F {
	y := slices.Clone(x)
	for i := range y {
		y[i] *= by
	}
	return y
}

func floats(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}
