package graph

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Trained are the parameters of a Projection that are nodes of a graph, so that they have
// gradients and a solver can change them. The zero value has none. Their products are float32.
type Trained struct {
	Weight *gorgonia.Node // [outputs, inputs], in place of Projection.Weight
	Bias   *gorgonia.Node // [outputs], in place of Projection.Bias

	// A and B are a low-rank adapter (LoRA, arXiv 2106.09685), both or none. It adds
	// Scale B A x to the outputs, whether the weight is a constant or a node.
	A     *gorgonia.Node // [rank, inputs]
	B     *gorgonia.Node // [outputs, rank]
	Scale float64
}

func (t *Trained) any() bool { return *t != Trained{} }

// Train makes the weight and the bias inputs of g, named Path.weight and Path.bias, that start
// as copies of them in float32, and returns these inputs. Quantized weights stay constants: they
// are an op.ErrValue here, and take adapters.
func (p *Projection) Train(g *gorgonia.ExprGraph) (gorgonia.Nodes, error) {
	w, err := Parameter(g, p.Path+".weight", p.Weight)
	if err != nil {
		return nil, err
	}
	p.Trained.Weight = w
	nodes := gorgonia.Nodes{w}
	if p.Bias != nil {
		p.Trained.Bias = parameter(g, p.Path+".bias", p.Bias, len(p.Bias))
		nodes = append(nodes, p.Trained.Bias)
	}
	return nodes, nil
}

// Adapt gives the projection an adapter of a rank, whose nodes are inputs of g named
// Path.adapter.a and Path.adapter.b, and returns these. A starts with normal random numbers of
// variance 1/inputs, B with zeros, so that the projection computes at first what it did.
func (p *Projection) Adapt(g *gorgonia.ExprGraph, rank int, scale float64, seed uint64) (gorgonia.Nodes, error) {
	rows, cols := p.Weight.Rows, p.Weight.Cols
	switch {
	case g == nil:
		return nil, fmt.Errorf("graph: %s: %w: the graph is nil", p.Path, op.ErrValue)
	case rank < 1 || rank > max(rows, cols):
		return nil, fmt.Errorf("graph: %s: %w: an adapter of rank %d for a weight [%d %d], want at least 1 and no more than the weight has", p.Path, op.ErrValue, rank, rows, cols)
	case scale == 0 || math.IsNaN(scale) || math.IsInf(scale, 0):
		return nil, fmt.Errorf("graph: %s: %w: scale %v of an adapter, want a finite number other than 0", p.Path, op.ErrValue, scale)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	a := make([]float32, rank*cols)
	for i := range a {
		a[i] = float32(r.NormFloat64() / math.Sqrt(float64(cols)))
	}
	t := &p.Trained
	t.A = parameter(g, p.Path+".adapter.a", a, rank, cols)
	t.B = parameter(g, p.Path+".adapter.b", make([]float32, rows*rank), rows, rank)
	t.Scale = scale
	return gorgonia.Nodes{t.A, t.B}, nil
}

// Train makes the weight an input of g, named Path.weight, that starts as a copy of it, and
// returns this input.
func (n *Norm) Train(g *gorgonia.ExprGraph) (gorgonia.Nodes, error) {
	switch {
	case g == nil:
		return nil, fmt.Errorf("graph: %s: %w: the graph is nil", n.Path, op.ErrValue)
	case len(n.Weight) == 0:
		return nil, fmt.Errorf("graph: %s: %w: the norm has no weight", n.Path, op.ErrShape)
	}
	n.Trained = parameter(g, n.Path+".weight", n.Weight, len(n.Weight))
	return gorgonia.Nodes{n.Trained}, nil
}

// Train makes all weights of the block inputs of g and returns these: see Projection.Train. It
// comes before Build.
func (b *Block) Train(g *gorgonia.ExprGraph) (nodes gorgonia.Nodes, err error) {
	if b == nil {
		return nil, errNoBlock
	}
	own := *b // an error changes nothing
	trains := []interface {
		Train(*gorgonia.ExprGraph) (gorgonia.Nodes, error)
	}{&own.AttentionNorm, &own.FeedForwardNorm}
	for _, p := range own.projections() {
		trains = append(trains, p)
	}
	for _, t := range trains {
		of, err := t.Train(g)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, of...)
	}
	*b = own
	return nodes, nil
}

// Adapt gives each projection of the block an adapter and returns their nodes: see
// Projection.Adapt. It comes before Build.
func (b *Block) Adapt(g *gorgonia.ExprGraph, rank int, scale float64, seed uint64) (nodes gorgonia.Nodes, err error) {
	if b == nil {
		return nil, errNoBlock
	}
	own := *b
	for i, p := range own.projections() {
		of, err := p.Adapt(g, rank, scale, seed+uint64(i))
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, of...)
	}
	*b = own
	return nodes, nil
}

func (b *Block) projections() []*Projection {
	return []*Projection{&b.Q, &b.K, &b.V, &b.Out, &b.Gate, &b.Up, &b.Down}
}

// Parameter is an input of g that starts as a copy of a weight in float32, for TrainedEmbed,
// TrainedLogits or Trained. A quantized weight is an op.ErrValue.
func Parameter(g *gorgonia.ExprGraph, name string, w op.Weight) (*gorgonia.Node, error) {
	m, err := op.NewWeight(w.Rows, w.Cols, w.DType, w.Data)
	switch {
	case g == nil:
		return nil, fmt.Errorf("graph: %s: %w: the graph is nil", name, op.ErrValue)
	case err != nil:
		return nil, fmt.Errorf("graph: %s: %w: %w", name, op.ErrShape, err)
	case w.DType.Quantized():
		return nil, fmt.Errorf("graph: %s: %w: a weight of type %v stays a constant; want F32, BF16 or F16, or an adapter", name, op.ErrValue, w.DType)
	}
	values := make([]float32, w.Rows*w.Cols)
	for i := range w.Rows {
		(*kernel.Matrix)(&m).Row(values[i*w.Cols:][:w.Cols], i)
	}
	return parameter(g, name, values, w.Rows, w.Cols), nil
}

// parameter is an input that holds a copy of v.
func parameter(g *gorgonia.ExprGraph, name string, v []float32, shape ...int) *gorgonia.Node {
	t := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(append([]float32{}, v...)))
	return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithValue(t))
}

// TrainedEmbed is Embed on the CPU with the table [V,D] as a node: ids [B,N] int32 ->
// [B,N,D]. The gradient of the table has its size.
func TrainedEmbed(path string, ids, table *gorgonia.Node) (*gorgonia.Node, error) {
	return op.Apply(op.NewTrainedEmbed(path), ids, table)
}

// TrainedLogits is Logits with the weight [V,D] as a node: x [1,R,D], rows [R] int32 -> [R,V].
func TrainedLogits(path string, x, rows, head *gorgonia.Node) (*gorgonia.Node, error) {
	return apply(op.NewTrainedLMHead(path), x, rows, head)
}

// CrossEntropy is the loss of each row of logits [R,V] for targets [R] int32: [R]. A negative
// target has a loss and a gradient of 0.
func CrossEntropy(path string, logits, targets *gorgonia.Node) (*gorgonia.Node, error) {
	return apply(op.NewCrossEntropy(path), logits, targets)
}

// outputs is the number of outputs of a projection.
func (p *Projection) outputs() int {
	if w := p.Trained.Weight; w != nil && len(w.Shape()) == 2 {
		return w.Shape()[0]
	}
	return p.Weight.Rows
}

// linear is Linear of a projection with nodes.
func (p *Projection) linear(x *gorgonia.Node) (y *gorgonia.Node, err error) {
	t := &p.Trained
	switch {
	case (t.A == nil) != (t.B == nil):
		return nil, fmt.Errorf("graph: %s: %w: an adapter needs both A and B", p.Path, op.ErrValue)
	case t.A == nil && t.Scale != 0:
		return nil, fmt.Errorf("graph: %s: %w: a scale of %v without an adapter", p.Path, op.ErrValue, t.Scale)
	case t.Weight != nil && t.Bias == nil && p.Bias != nil:
		return nil, fmt.Errorf("graph: %s: %w: the weight is a node and the bias a constant; want nodes for both", p.Path, op.ErrValue)
	case t.Weight != nil:
		y, err = apply(op.NewTrainedLinear(p.Path, 1), x, t.Weight)
	default:
		constant := *p
		constant.Trained = Trained{}
		if t.Bias != nil {
			constant.Bias = nil
		}
		y, err = Linear(x, constant)
	}
	if err == nil && t.Bias != nil {
		y, err = apply(op.NewAddBias(p.Path+".bias"), y, t.Bias)
	}
	if err != nil || t.A == nil {
		return y, err
	}
	low, err := apply(op.NewTrainedLinear(p.Path+".adapter.a", 1), x, t.A) // [B,N,rank]
	if err != nil {
		return nil, err
	}
	if low, err = apply(op.NewTrainedLinear(p.Path+".adapter.b", t.Scale), low, t.B); err != nil {
		return nil, err
	}
	return Add(p.Path+".adapter", y, low)
}

// single returns the only projection if it has nodes, nil if none has.
func single(projections []Projection) (*Projection, error) {
	for i := range projections {
		switch p := &projections[i]; {
		case !p.Trained.any():
		case len(projections) > 1:
			return nil, fmt.Errorf("graph: %s: %w: a projection with nodes is one of %d, want a layer of its own", p.Path, op.ErrValue, len(projections))
		default:
			return p, nil
		}
	}
	return nil, nil
}
