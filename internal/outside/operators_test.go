package outside_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// operatorCase is one of the operators of PulseCol alone, on random inputs.
type operatorCase struct {
	t *testing.T
	r *rand.Rand
	g *gorgonia.ExprGraph
	a *operands
	q, k, v,
	mask *gorgonia.Node
	group int
}

// TestOperators: ScoreCollect, GroupTopK, ColumnSparseAttn and DenseAttn without a
// controller, under Gorgonia's own machine.
func TestOperators(t *testing.T) {
	n, kinds := cases(2400), map[string]int{}
	for seed := range n {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 4))
			s := drawShape(r)
			s.n = 1 + r.IntN(pick(r, 5, 30, 70))
			c := &operatorCase{t: t, r: r, g: gorgonia.NewGraph(), group: pick(r, 1, 2, 3, 5, 32, s.n, s.n+3)}
			c.a = &operands{batch: s.batch, heads: s.heads, kvHeads: s.kvHeads, n: s.n, dim: s.dim, scale: pick(r, 0, 0, 0.5, 3)}
			if r.IntN(3) == 0 {
				c.a.valid = drawMask(r, s.batch, s.n)
				c.mask = input(c.g, "mask", c.a.valid, s.batch, s.n)
			}
			kind := pick(r, "ScoreCollect", "GroupTopK", "GroupTopK", "ColumnSparseAttn", "DenseAttn")
			kinds[kind]++
			if kind == "GroupTopK" {
				c.groupTopK()
				return
			}
			in := func(name string, heads int) (*gorgonia.Node, array) {
				x := drawValues(r, s.batch*heads*s.n*s.dim)
				return input(c.g, name, x, s.batch, heads, s.n, s.dim), exact(x)
			}
			c.q, c.a.q = in("q", s.heads)
			c.k, c.a.k = in("k", s.kvHeads)
			c.v, c.a.v = in("v", s.kvHeads)
			p := op.AttentionParams{Group: c.group, Scale: c.a.scale, Masked: c.mask != nil}
			switch kind {
			case "ScoreCollect":
				got := c.run(must(op.NewScoreCollect("o", p))(t), c.q, c.k, c.v)
				c.within(got, c.a.scores(c.group, 0, 0), func(int) bool { return true })
			case "DenseAttn":
				got := c.run(must(op.NewDenseAttn("o", c.a.scale, c.mask != nil))(t), c.q, c.k, c.v)
				c.within(got, c.a.attention(all), c.readable)
			default:
				groups, words := c.a.groups(c.group), (s.n+31)/32
				bits := make([]uint32, s.batch*s.heads*groups*words)
				empty := r.IntN(4) == 0
				for i := range bits {
					if bits[i] = r.Uint32() & r.Uint32(); empty && r.IntN(2) == 0 {
						bits[i] = 0 // a query without any key gets zeros
					}
					if last := s.n % 32; i%words == words-1 && last != 0 {
						bits[i] &= 1<<last - 1
					}
				}
				got := c.run(must(op.NewColumnSparseAttn("o", p))(t), c.q, c.k, c.v, input(c.g, "columns", bits, s.batch, s.heads, groups, words))
				c.within(got, c.a.attention(func(b, h, i, j int) bool {
					return bits[((b*s.heads+h)*groups+i/c.group)*words+j/32]>>(j%32)&1 == 1
				}), c.readable)
			}
		})
	}
	t.Logf("%d cases: %v", n, kinds)
}

// run runs an operator and returns its result.
func (c *operatorCase) run(o gorgonia.Op, in ...*gorgonia.Node) gorgonia.Value {
	c.t.Helper()
	if c.mask != nil {
		in = append(in, c.mask)
	}
	var v gorgonia.Value
	gorgonia.Read(must(op.Apply(o, in...))(c.t), &v)
	vm := gorgonia.NewTapeMachine(c.g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		c.t.Fatal(err)
	}
	return v
}

// readable reports whether a value [batch, heads, n, dim] is that of a token.
func (c *operatorCase) readable(i int) bool {
	return c.a.real(i/(c.a.heads*c.a.n*c.a.dim), i/c.a.dim%c.a.n)
}

func (c *operatorCase) within(got gorgonia.Value, want array, readable func(int) bool) {
	c.t.Helper()
	x := floats(got)
	if len(x) != len(want.v) {
		c.t.Fatalf("%d values, want %d", len(x), len(want.v))
	}
	for i, v := range want.v {
		if d := math.Abs(float64(x[i]) - v); readable(i) && !(d <= want.e[i]) {
			c.t.Errorf("value %d is %g, want %g ± %.2g", i, x[i], v, want.e[i])
			return
		}
	}
}

// groupTopK selects by scores of few values, which tie and whose sums are exact.
func (c *operatorCase) groupTopK() {
	a, r := c.a, c.r
	sel := op.Selection{Sparsity: drawSparsity(r, a.n)}
	sd := sparseD{sparsity: sel.Sparsity, n: a.n}
	width := a.n
	switch r.IntN(3) {
	case 1:
		sel.Kind, sel.Block = op.SelectBlocks, pick(r, 1, 2, 3, 16, a.n+1)
	case 2:
		sd.size, sd.generated = c.group, r.IntN(a.n+3)
		sel.Kind, sel.Block, sel.Generation = op.SelectSparseD, sd.size, sd.generated
		width += a.n - sd.first()
	}
	groups := a.groups(c.group)
	scores := make([]float32, a.batch*a.heads*groups*width)
	values := 1 + r.IntN(40)
	for i := range scores {
		scores[i] = float32(r.IntN(values)) / 64
		if j := i % width; j < a.n && !a.real(i/(a.heads*groups*width), j) || j >= a.n && !a.real(i/(a.heads*groups*width), j-width+a.n) {
			scores[i] = 0 // as ScoreCollect gives padding
		}
	}
	p := op.AttentionParams{Group: c.group, Masked: c.mask != nil, Selection: sel}
	bits := c.run(must(op.NewGroupTopK("o", a.n, p))(c.t), input(c.g, "scores", scores, a.batch, a.heads, groups, width)).Data().([]uint32)
	words := (a.n + 31) / 32
	for row := range a.batch * a.heads * groups {
		b := row / (a.heads * groups)
		var keys, candidates []int
		for j := range words * 32 {
			if bits[row*words+j/32]>>(j%32)&1 == 1 {
				keys = append(keys, j)
			}
			if j < a.n && a.real(b, j) {
				candidates = append(candidates, j)
			}
		}
		s := exact(scores[row*width:][:a.n])
		var err error
		switch sel.Kind {
		case op.SelectColumns:
			err = isTopK(s, candidates, keep(sel.Sparsity, len(candidates)), keys)
		case op.SelectBlocks:
			sums, blocks := blockSums(s, candidates, 0, sel.Block)
			var selected []int
			if selected, err = blocksOf(keys, candidates, 0, sel.Block); err == nil {
				err = isTopK(sums, blocks, keep(sel.Sparsity, (a.n+sel.Block-1)/sel.Block), selected)
			}
		default:
			generated := newArray(a.n)
			for j := sd.first(); j < a.n; j++ {
				generated.v[j] = float64(scores[row*width+a.n+j-sd.first()])
			}
			err = sd.check(s, generated, candidates, keys)
		}
		if err == nil && slices.ContainsFunc(keys, func(j int) bool { return !slices.Contains(candidates, j) }) {
			err = fmt.Errorf("a key that there is not, or padding")
		}
		if err != nil {
			c.t.Errorf("%d tokens in groups of %d, %+v, scores %v keep %v: %v", a.n, c.group, sel, scores[row*width:][:width], keys, err)
			return
		}
	}
}
