package pulsecol_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// randomColumns returns a table in which each group keeps every key, one, or each with
// probability 1/2 and at least one.
func randomColumns(r *rand.Rand, batch, heads, n, group int) *pulsecol.ColumnTable {
	c, err := pulsecol.NewColumnTable(batch, heads, n, group, func(int, int, int) (keys []int) {
		chance := []int{1, 2, 1 << 30}[r.IntN(3)]
		for j := range n {
			if r.IntN(chance) == 0 {
				keys = append(keys, j)
			}
		}
		return append(keys, r.IntN(n))
	})
	if err != nil {
		panic(err)
	}
	return c
}

// keptBy is the definition of a table for attention of a shape, query by query.
func keptBy(c *pulsecol.ColumnTable, s kernel.Shape) *kernel.Table {
	return perQuery(s, func(b, h, i, j int) bool {
		_, kept := slices.BinarySearch(c.Keys(b, h, i/c.Group), j)
		return kept
	})
}

// TestFixedRoundTrip: the tables of a refresh, read and given to another controller,
// make its steps those of reuse to the bit.
func TestFixedRoundTrip(t *testing.T) {
	for _, s := range shapes() {
		for _, pattern := range []pulsecol.Pattern{pulsecol.Columns{}, pulsecol.Blocks{Size: 3}, pulsecol.SparseD{BlockSize: 16, Generation: s.Len / 2}} {
			for _, padded := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v,%v,padded=%v", s, pattern, padded), func(t *testing.T) {
					a, b := attncase.Seeded(1, s.Shape), attncase.Seeded(2, s.Shape)
					if padded {
						attncase.PadLeft(a, s.Len-1, s.Len/2, s.Len) // the third row is nothing else
						b.Valid = a.Valid
					}
					const layers = 2
					from := newRig(t, a, pulsecol.Config{Sparsity: s.Sparsity, GroupSize: s.Group, Pattern: pattern, Schedule: refreshOnce}, layers, nil)
					from.start(3)
					from.step(a, refresh)
					var tables []*pulsecol.ColumnTable
					for i := range layers {
						tables = append(tables, must(from.ctl.Columns(i))(t))
					}
					to := newRig(t, a, pulsecol.Config{Pattern: pulsecol.Fixed{Tables: tables}}, layers, nil)
					to.start(3)
					tol.SameBits(t, "on b", to.step(b, reuse), from.step(b, reuse))
					tol.SameBits(t, "on a", to.step(a, reuse), from.step(a, reuse))
					for i, want := range tables {
						if diff := cmp.Diff(want, must(to.ctl.Columns(i))(t)); diff != "" {
							t.Errorf("layer %d (-given +read):\n%s", i, diff)
						}
						if got, want := to.ctl.Stats().Layers[i].Density, from.ctl.Stats().Layers[i].Density; math.Abs(got-want) > 1e-12 {
							t.Errorf("layer %d has density %v, want %v", i, got, want)
						}
					}
				})
			}
		}
	}
}

// TestFixed holds attention on tables for some or all batch rows and heads to the
// reference, with and without padding.
func TestFixed(t *testing.T) {
	r := attncase.Rand(5)
	for _, s := range shapes() {
		if s.Cost() > 4e5 {
			continue // the reference runs up to 24 times
		}
		for _, batch := range []int{1, s.Batch} {
			for _, heads := range []int{1, s.Heads} {
				for _, padded := range []bool{false, true} {
					t.Run(fmt.Sprintf("%v,%dx%d,padded=%v", s, batch, heads, padded), func(t *testing.T) {
						a, b := attncase.Seeded(1, s.Shape), attncase.Seeded(2, s.Shape)
						table := randomColumns(r, batch, heads, s.Len, s.Group)
						if padded {
							attncase.PadLeft(a, s.Len/2, 0, s.Len)
							attncase.PadLeft(b, s.Len/3, s.Len, 1) // another step may have other padding
						}
						g := newRig(t, a, pulsecol.Config{GroupSize: s.Group, Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{table}}}, 1, nil)
						want := keptBy(table, s.Shape)
						g.start(3)
						checkAttention(t, g.step(a, reuse), a, want)
						checkAttention(t, g.step(b, reuse), b, want)
						g.ctl.SetDense(true)
						checkAttention(t, g.step(a, denseStep), a, nil)
					})
				}
			}
		}
	}
}

// TestFixedPadding: a group without a key gets zeros, whether all its keys are padding or
// the table has none.
func TestFixedPadding(t *testing.T) {
	a := attncase.Seeded(1, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 40, HeadDim: 4})
	attncase.PadLeft(a, 33)
	table := must(pulsecol.NewColumnTable(1, 1, 40, 10, func(_, _, group int) []int {
		if group == 1 {
			return nil
		}
		return []int{10 * group}
	}))(t)
	r := newRig(t, a, pulsecol.Config{Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{table}}}, 1, nil)
	r.start(1)
	for _, y := range r.step(a, reuse) {
		if y != 0 {
			t.Fatalf("attention to padding alone gives %v", y)
		}
	}
}

// TestFixedNeverRefreshes: with any schedule, sparsity and Invalidate, every step reads the
// given tables, and the controller allocates none.
func TestFixedNeverRefreshes(t *testing.T) {
	a := attncase.Seeded(1, small)
	table := randomColumns(attncase.Rand(1), 1, small.Heads, small.Len, 8)
	given := slices.Clone(table.Bits)
	for _, schedule := range []pulsecol.Schedule{nil, pulsecol.Always{}, pulsecol.AlwaysDense{}, pulsecol.Skip{Fraction: 0.5}} {
		for _, sparsity := range []float64{0, 0.9} {
			r := newRig(t, a, pulsecol.Config{Sparsity: sparsity, Schedule: schedule, Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{table}}}, 2, nil)
			if group := r.ctl.Config().GroupSize; group != 8 {
				t.Errorf("groups of %d queries are in force, want the table's 8", group)
			}
			if modes, bytes := r.ctl.Modes(), r.ctl.ColumnBytes(r.g); slices.Contains(modes, refresh) || bytes != 0 {
				t.Errorf("modes %v and %d bytes of columns, want no refresh and 0", modes, bytes)
			}
			for range 2 {
				r.start(4)
				first := r.step(a, reuse)
				r.ctl.Invalidate()
				tol.SameBits(t, "after Invalidate", r.step(a, reuse), first)
			}
			s := r.ctl.Stats()
			if s.Reuses != 2 || s.Refreshes != 0 || s.Layers[0].Refreshes != 0 || s.Layers[0].Bytes != 0 || s.Layers[0].Churn != 0 || r.ctl.Drift() != 0 {
				t.Errorf("%+v, drift %v", s, r.ctl.Drift())
			}
		}
	}
	if !slices.Equal(table.Bits, given) {
		t.Error("the user's table has changed")
	}
}

// TestFixedConfig names what is wrong with tables.
func TestFixedConfig(t *testing.T) {
	good := randomColumns(attncase.Rand(1), 2, 3, 70, 16)
	// bad returns good after a change.
	bad := func(change func(c *pulsecol.ColumnTable)) *pulsecol.ColumnTable {
		copied := *good
		c := &copied
		c.Bits = slices.Clone(c.Bits)
		change(c)
		return c
	}
	fixed := func(tables ...*pulsecol.ColumnTable) pulsecol.Config {
		return pulsecol.Config{Device: pulsecol.CPU, Pattern: pulsecol.Fixed{Tables: tables}}
	}
	grouped, adaptive := fixed(good), fixed(good)
	grouped.GroupSize, adaptive.Schedule = 32, pulsecol.Adaptive{}
	for want, cfg := range map[string]pulsecol.Config{
		"0 Tables and none that is not nil":                                                     fixed(),
		"2 Tables and none that is not nil":                                                     fixed(nil, nil),
		"Tables[1]: wrong shape: Batch is 0, want at least 1":                                   fixed(good, &pulsecol.ColumnTable{}),
		"Tables[0]: wrong shape: Heads is -1":                                                   fixed(bad(func(c *pulsecol.ColumnTable) { c.Heads = -1 })),
		"Tables[0]: wrong shape: Len is 0":                                                      fixed(bad(func(c *pulsecol.ColumnTable) { c.Len = 0 })),
		"Tables[0]: wrong shape: Group is 0":                                                    fixed(bad(func(c *pulsecol.ColumnTable) { c.Group = 0 })),
		"Tables[0]: wrong shape: 89 words of Bits, want 2·3·ceil(70/16)·ceil(70/32)":            fixed(bad(func(c *pulsecol.ColumnTable) { c.Bits = c.Bits[1:] })),
		"90 words of Bits, want 2·9223372036854775807":                                          fixed(bad(func(c *pulsecol.ColumnTable) { c.Heads = math.MaxInt })),
		"90 words of Bits, want 2·3·ceil(9223372036854775807/":                                  fixed(bad(func(c *pulsecol.ColumnTable) { c.Len = math.MaxInt })),
		"Tables[0]: wrong value: batch row 1, head 2, group 4 keeps keys beyond the last of 70": fixed(bad(func(c *pulsecol.ColumnTable) { c.Bits[len(c.Bits)-1] |= 1 << 6 })),
		"Tables[0]: wrong value: no group keeps a key":                                          fixed(bad(func(c *pulsecol.ColumnTable) { clear(c.Bits) })),
		"Tables[1] has groups of 8 queries, want 16 as the tables before":                       fixed(good, randomColumns(attncase.Rand(2), 1, 1, 70, 8)),
		"GroupSize is 32, want 16 as the tables of Pattern fixed columns have, or 0 for that":   grouped,
		"Schedule adaptive": adaptive,
	} {
		if _, err := pulsecol.NewController(cfg); !errors.Is(err, pulsecol.ErrConfig) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("got %v, want ErrConfig with %q", err, want)
		}
	}
	padding := bad(func(c *pulsecol.ColumnTable) { clear(c.Bits[1:]) }) // all groups but one
	for _, cfg := range []pulsecol.Config{fixed(good), fixed(nil, good, good), fixed(padding), {Device: pulsecol.CPU, GroupSize: 16, Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{good}}}} {
		if err := cfg.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// TestFixedInGraph: a layer that has no table, or one of other sizes, is an error that
// names it, before the graph has nodes for it.
func TestFixedInGraph(t *testing.T) {
	s := kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 40, HeadDim: 4}
	r := attncase.Rand(1)
	good := randomColumns(r, 2, 4, 40, 8)
	none := randomColumns(r, 2, 4, 40, 8)
	clear(none.Bits[2*((1*4+2)*5+3):][:2])
	for want, table := range map[string]*pulsecol.ColumnTable{
		"columns given for 41 tokens, want 40":                                         randomColumns(r, 2, 4, 41, 8),
		"columns given for 3 batch rows, want 1 or 2":                                  randomColumns(r, 3, 4, 40, 8),
		"columns given for 2 heads, want 1 or 4":                                       randomColumns(r, 2, 2, 40, 8), // not those of keys
		"Pattern fixed columns has no table for this ":                                 nil,
		"without a key for batch row 1, head 2, group 3, and there is no padding mask": none,
	} {
		ctl := newController(t, pulsecol.Config{Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{good, table, good}}})
		g := gorgonia.NewGraph()
		q, k, v, _ := qkv(g, attncase.Seeded(1, s))
		must(pulsecol.Attention(q, k, v, ctl.Layer(0)))(t)
		before := len(g.AllNodes())
		_, err := pulsecol.Attention(q, k, v, ctl.Layer(1))
		if err == nil || !strings.Contains(err.Error(), "pulsecol.layers.1.attention") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want one about layers.1 with %q", err, want)
		}
		if table != nil && !errors.Is(err, op.ErrShape) && !errors.Is(err, op.ErrValue) {
			t.Errorf("%v is neither ErrShape nor ErrValue", err)
		}
		if got := len(g.AllNodes()); got != before {
			t.Errorf("the layer that failed has left %d nodes", got-before)
		}
		must(pulsecol.Attention(q, k, v, ctl.Layer(2)))(t)
		if _, err := pulsecol.Attention(q, k, v, ctl.Layer(3)); err == nil || !strings.Contains(err.Error(), "layers.3") {
			t.Errorf("a layer after the last table: %v", err)
		}
	}
}

// TestNewColumnTable: bad sizes and keys are errors that name them.
func TestNewColumnTable(t *testing.T) {
	none := func(int, int, int) []int { return nil }
	for want, call := range map[string]func() (*pulsecol.ColumnTable, error){
		"0 batch rows":         func() (*pulsecol.ColumnTable, error) { return pulsecol.NewColumnTable(0, 1, 1, 1, none) },
		"-2 heads":             func() (*pulsecol.ColumnTable, error) { return pulsecol.NewColumnTable(1, -2, 1, 1, none) },
		"0 tokens":             func() (*pulsecol.ColumnTable, error) { return pulsecol.NewColumnTable(1, 1, 0, 1, none) },
		"0 queries in a group": func() (*pulsecol.ColumnTable, error) { return pulsecol.NewColumnTable(1, 1, 1, 0, none) },
		"9.22e+18 words":       func() (*pulsecol.ColumnTable, error) { return pulsecol.NewColumnTable(math.MaxInt, 1, 1, 1, none) },
		"5.53e+19 words":       func() (*pulsecol.ColumnTable, error) { return pulsecol.NewColumnTable(1<<32, 1<<32, 5, 2, none) },
		"1.89e+22 words":       func() (*pulsecol.ColumnTable, error) { return pulsecol.NewColumnTable(1, 1, 1<<40, 2, none) },
		"keys is nil":          func() (*pulsecol.ColumnTable, error) { return pulsecol.NewColumnTable(1, 1, 1, 1, nil) },
		"key 7 of batch row 0, head 1, group 1, want 0 to 6": func() (*pulsecol.ColumnTable, error) {
			return pulsecol.NewColumnTable(1, 2, 7, 4, func(_, head, group int) []int { return []int{6 + head*group} })
		},
		"key -1 of batch row 0, head 0, group 0": func() (*pulsecol.ColumnTable, error) {
			return pulsecol.NewColumnTable(1, 2, 7, 4, func(int, int, int) []int { return []int{-1} })
		},
	} {
		table, err := call()
		if table != nil || !(errors.Is(err, op.ErrShape) || errors.Is(err, op.ErrValue)) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("got %v, %v, want an error with %q", table, err, want)
		}
	}
	var absent *pulsecol.ColumnTable
	if absent.Groups() != 0 || absent.Keys(0, 0, 0) != nil || !errors.Is(absent.Validate(), op.ErrShape) {
		t.Error("a nil table has keys")
	}
	huge := pulsecol.ColumnTable{Batch: math.MaxInt, Heads: math.MaxInt, Len: math.MaxInt, Group: 1, Bits: []uint32{1}}
	if huge.Keys(1<<20, 1<<20, 1<<20) != nil {
		t.Error("a table larger than its bits has keys")
	}
	var empty pulsecol.ColumnTable
	if empty.Groups() != 0 || empty.Keys(0, 0, 0) != nil {
		t.Error("a table without sizes has keys")
	}
	short := pulsecol.ColumnTable{Batch: 1, Heads: 1, Len: 40, Group: 8}
	if short.Keys(0, 0, 4) != nil {
		t.Error("a table without bits has keys")
	}
}

// FuzzColumnTable: any bits of any sizes are either refused or what Keys and
// NewColumnTable make of each other, and keep what a bit says.
func FuzzColumnTable(f *testing.F) {
	f.Add(1, 1, 5, 2, []byte{1, 0, 0, 0, 31, 0, 0, 0, 16, 0, 0, 0})
	f.Add(2, 1, 33, 40, []byte{1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add(1, 1, 3, 1, []byte{8, 0, 0, 0})
	f.Add(math.MaxInt, 2, math.MaxInt, 1, []byte{1, 0, 0, 0})
	f.Add(0, -1, 5, 0, []byte{})
	f.Fuzz(func(t *testing.T, batch, heads, n, group int, data []byte) {
		c := pulsecol.ColumnTable{Batch: batch, Heads: heads, Len: n, Group: group}
		for len(data) >= 4 {
			c.Bits, data = append(c.Bits, binary.LittleEndian.Uint32(data)), data[4:]
		}
		err := c.Validate()
		c.Keys(0, 0, 0) // must not panic on an invalid table
		if err != nil {
			if !errors.Is(err, op.ErrShape) && !errors.Is(err, op.ErrValue) {
				t.Errorf("%v is neither ErrShape nor ErrValue", err)
			}
			return
		}
		again, err := pulsecol.NewColumnTable(batch, heads, n, group, func(b, h, u int) []int {
			keys := c.Keys(b, h, u)
			if !slices.IsSorted(keys) {
				t.Errorf("keys %v of %d, %d, %d are not in order", keys, b, h, u)
			}
			slices.Reverse(keys)
			return append(keys, keys...) // neither order nor repetition matters
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, *again); diff != "" {
			t.Errorf("(-bits +from keys):\n%s", diff)
		}
	})
}
