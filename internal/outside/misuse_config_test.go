package outside_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/op"
)

// panics is a schedule that panics.
type panics struct{}

func (panics) Mode(int, int) pulsecol.Mode { panic("a schedule of the caller") }

// embeds is a schedule that embeds Adaptive.
type embeds struct{ pulsecol.Adaptive }

// embedsNil is a schedule that embeds a pointer, which is nil.
type embedsNil struct{ *pulsecol.Adaptive }

// badConfigs are configs with one thing wrong.
func badConfigs() map[string]pulsecol.Config {
	bad := map[string]pulsecol.Config{
		"group":                {GroupSize: -1},
		"smallest group":       {GroupSize: math.MinInt},
		"threads":              {Threads: -1},
		"precision":            {Precision: 99},
		"device":               {Device: 99},
		"int16 on a GPU":       {Device: pulsecol.CUDA, Precision: pulsecol.Int16}, // nor without one
		"sparsity 1":           {Sparsity: 1},
		"sparsity 2":           {Sparsity: 2},
		"pointer":              {Pattern: &pulsecol.Columns{}},
		"nil pointer":          {Pattern: (*pulsecol.Blocks)(nil)},
		"schedule pointer":     {Schedule: &pulsecol.Uniform{}},
		"nil schedule pointer": {Schedule: (*pulsecol.Skip)(nil)},
		"nil own schedule":     {Schedule: (*panics)(nil)},
		"embedded nil":         {Schedule: embedsNil{}},
		"blocks":               {Pattern: pulsecol.Blocks{Size: -1}},
		"width":                {Pattern: pulsecol.SlidingWindow{Width: -1}},
		"streaming":            {Pattern: pulsecol.Streaming{Width: math.MinInt}},
		"sink":                 {Pattern: pulsecol.Streaming{SinkFraction: 1.5}},
		"sparsed block":        {Pattern: pulsecol.SparseD{BlockSize: -1}},
		"generation":           {Pattern: pulsecol.SparseD{Generation: -1}},
		"no tables":            {Pattern: pulsecol.Fixed{}},
		"nil tables":           {Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{nil, nil}}},
		"a zero table":         {Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{{}}}},
		"a table without bits": {Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{{Batch: 1, Heads: 1, Len: 3, Group: 1}}}},
		"a huge table":         {Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{{Batch: math.MaxInt, Heads: math.MaxInt, Len: math.MaxInt, Group: 1, Bits: []uint32{1}}}}},
		"empty groups":         {Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{{Batch: 1, Heads: 1, Len: 3, Group: 3, Bits: []uint32{0}}}}},
		"a key too many":       {Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{{Batch: 1, Heads: 1, Len: 3, Group: 3, Bits: []uint32{9}}}}},
		"refreshes":            {Schedule: pulsecol.Uniform{Refreshes: -1}},
		"huge refreshes":       {Schedule: pulsecol.Random{Refreshes: math.MaxInt}},
		"embedded eta":         {Schedule: embeds{pulsecol.Adaptive{Eta: 2}}},
		"skip 1":               {Schedule: pulsecol.Skip{Fraction: 1}},
		"threshold":            {Schedule: pulsecol.Adaptive{Threshold: 1.5}},
	}
	maps.Copy(bad, badCaches())
	for i, x := range wrong {
		for name, c := range map[string]pulsecol.Config{
			"sparsity": {Sparsity: x}, "scale": {Scale: x},
			"uniform": {Schedule: pulsecol.Uniform{Eta: x}}, "power": {Schedule: pulsecol.Power{Eta: x}},
			"random": {Schedule: pulsecol.Random{Eta: x}}, "adaptive": {Schedule: pulsecol.Adaptive{Eta: x}},
			"threshold": {Schedule: pulsecol.Adaptive{Threshold: x}}, "skip": {Schedule: pulsecol.Skip{Fraction: x}},
			"sink": {Pattern: pulsecol.Streaming{SinkFraction: x}}, "score scale": {Pattern: pulsecol.SparseD{ScoreScale: x}},
		} {
			bad[fmt.Sprint(name, " ", i)] = c
		}
	}
	one := table(1, 1, 4, 2)
	bad["groups of another table"] = pulsecol.Config{Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{one, table(1, 1, 4, 3)}}}
	bad["groups of the table"] = pulsecol.Config{GroupSize: 3, Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{one}}}
	bad["fixed and adaptive"] = pulsecol.Config{Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{one}}, Schedule: pulsecol.Adaptive{}}
	return bad
}

// table keeps key 0 of every group.
func table(batch, heads, n, group int) *pulsecol.ColumnTable {
	t, err := pulsecol.NewColumnTable(batch, heads, n, group, func(int, int, int) []int { return []int{0} })
	if err != nil {
		panic(err)
	}
	return t
}

// numbers of steps and totals that there cannot be, or hardly.
var numbers = []int{0, -1, math.MinInt, math.MaxInt, math.MaxInt - 1, 1 << 40}

// modes asks a schedule for the mode of steps that there cannot be: one of the three.
func modes(of ...pulsecol.Schedule) func(*misuse) {
	return func(m *misuse) {
		for _, s := range of {
			for _, step := range numbers {
				for _, total := range numbers {
					m.works(fmt.Sprintf("%#v, step %d of %d", s, step, total), func() error {
						if mode := s.Mode(step, total); mode > pulsecol.Reuse {
							return fmt.Errorf("mode %v", mode)
						}
						return nil
					})
				}
			}
		}
	}
}

// prints asks for the text of values that are wrong.
func prints(of ...fmt.Stringer) func(*misuse) {
	return func(m *misuse) {
		for _, s := range of {
			m.works(fmt.Sprintf("%T", s), func() error {
				if text := s.String(); text == "" || len(text) > longest {
					return fmt.Errorf("prints %q", text)
				}
				return nil
			})
		}
	}
}

var _ = misuses(map[string]func(*misuse){
	"pulsecol.Config.Validate": func(m *misuse) {
		for name, c := range badConfigs() {
			m.fails(name, c.Validate, pulsecol.ErrConfig)
		}
		m.works("a schedule that panics", pulsecol.Config{Schedule: panics{}}.Validate)
		many := pulsecol.Config{Sparsity: -1, GroupSize: -1, Threads: -1, Scale: -1, Pattern: pulsecol.Blocks{Size: -1}}
		if err := many.Validate(); err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 5 {
			m.Errorf("five problems: %v", err)
		}
	},
	"pulsecol.NewController": func(m *misuse) {
		for name, c := range badConfigs() {
			m.fails(name, func() error {
				ctl, err := pulsecol.NewController(c)
				if ctl != nil {
					return nil
				}
				return err
			}, pulsecol.ErrConfig)
		}
	},
	"pulsecol.NewColumnTable": func(m *misuse) {
		none := func(int, int, int) []int { return nil }
		for _, size := range numbers {
			m.fails(fmt.Sprint("batch ", size), func() error { return second(pulsecol.NewColumnTable(size, 1, 4, 2, none)) }, op.ErrShape)
			m.fails(fmt.Sprint("heads ", size), func() error { return second(pulsecol.NewColumnTable(1, size, 4, 2, none)) }, op.ErrShape)
			m.fails(fmt.Sprint("tokens ", size), func() error { return second(pulsecol.NewColumnTable(1, 1, size, 2, none)) }, op.ErrShape)
			if size < 1 {
				m.fails(fmt.Sprint("group ", size), func() error { return second(pulsecol.NewColumnTable(1, 1, 4, size, none)) }, op.ErrShape)
			}
			if size != 0 {
				m.fails(fmt.Sprint("key ", size), func() error {
					return second(pulsecol.NewColumnTable(1, 1, 4, 2, func(int, int, int) []int { return []int{size} }))
				}, op.ErrValue)
			}
		}
		m.works("a group larger than any sequence", func() error { return second(pulsecol.NewColumnTable(1, 1, 4, math.MaxInt, none)) })
		m.fails("nil keys", func() error { return second(pulsecol.NewColumnTable(1, 1, 4, 2, nil)) }, op.ErrValue)
		m.fails("product of sizes", func() error { return second(pulsecol.NewColumnTable(1<<32, 1<<32, 4, 2, none)) }, op.ErrShape)
	},
	"pulsecol.ColumnTable.Validate": func(m *misuse) {
		for name, c := range badConfigs() {
			if p, ok := c.Pattern.(pulsecol.Fixed); ok && len(p.Tables) == 1 && c.GroupSize == 0 && c.Schedule == nil && c.Cache == pulsecol.NoCache {
				m.fails(name, p.Tables[0].Validate)
			}
		}
		for _, size := range numbers {
			t := *table(1, 1, 4, 2)
			t.Len = size
			m.fails(fmt.Sprint("length ", size), t.Validate, op.ErrShape)
		}
		m.fails("nil", (*pulsecol.ColumnTable)(nil).Validate, op.ErrShape)
	},
	"pulsecol.ColumnTable.Groups": func(m *misuse) {
		for _, n := range append(numbers, 4) {
			for _, group := range append(numbers, 2) {
				want := 0
				if n > 0 && group > 0 {
					want = (n-1)/group + 1
				}
				m.is(fmt.Sprintf("%d in groups of %d", n, group), func() any { return (&pulsecol.ColumnTable{Len: n, Group: group}).Groups() }, want)
			}
		}
		m.is("nil", func() any { return (*pulsecol.ColumnTable)(nil).Groups() }, 0)
	},
	"pulsecol.ColumnTable.Keys": func(m *misuse) {
		t := table(2, 2, 4, 2)
		for _, i := range append(numbers, 2) {
			if i != 0 {
				m.is(fmt.Sprint("batch row ", i), func() any { return t.Keys(i, 0, 0) }, "[]")
				m.is(fmt.Sprint("head ", i), func() any { return t.Keys(0, i, 0) }, "[]")
				m.is(fmt.Sprint("group ", i), func() any { return t.Keys(0, 0, i) }, "[]")
			}
		}
		m.is("a zero table", func() any { return new(pulsecol.ColumnTable).Keys(0, 0, 0) }, "[]")
		m.is("a nil table", func() any { return (*pulsecol.ColumnTable)(nil).Keys(0, 0, 0) }, "[]")
		short := *t
		short.Bits = short.Bits[:1]
		m.is("a table without bits", func() any { return short.Keys(1, 1, 1) }, "[]")
		huge := &pulsecol.ColumnTable{Batch: math.MaxInt, Heads: math.MaxInt, Len: math.MaxInt, Group: 1, Bits: []uint32{1}}
		for _, i := range []int{0, 1, 1 << 20, math.MaxInt - 1} {
			m.does("a huge table", func() { huge.Keys(i, i, i) })
		}
	},
	"pulsecol.BlockColumns.Groups": func(m *misuse) {
		for _, rows := range append(numbers, 4) {
			for _, group := range append(numbers, 2) {
				want := 0
				if rows > 0 && group > 0 {
					want = (rows-1)/group + 1
				}
				m.is(fmt.Sprintf("%d in groups of %d", rows, group), func() any { return (&pulsecol.BlockColumns{Rows: rows, Group: group}).Groups() }, want)
			}
		}
		m.is("nil", func() any { return (*pulsecol.BlockColumns)(nil).Groups() }, 0)
	},
	"pulsecol.BlockColumns.Keys": func(m *misuse) {
		b := &pulsecol.BlockColumns{Batch: 2, Heads: 2, Len: 4, First: 1, Rows: 3, Group: 2, Bits: slices.Repeat([]uint32{5}, 8)}
		m.is("a group", func() any { return b.Keys(1, 1, 1) }, "[0 2]")
		for _, i := range append(numbers, 2) {
			if i != 0 && i != 1 {
				m.is(fmt.Sprint("batch row ", i), func() any { return b.Keys(i, 0, 0) }, "[]")
				m.is(fmt.Sprint("head ", i), func() any { return b.Keys(0, i, 0) }, "[]")
				m.is(fmt.Sprint("group ", i), func() any { return b.Keys(0, 0, i) }, "[]")
			}
		}
		m.is("without sizes", func() any { return new(pulsecol.BlockColumns).Keys(0, 0, 0) }, "[]")
		m.is("nil", func() any { return (*pulsecol.BlockColumns)(nil).Keys(0, 0, 0) }, "[]")
		short := *b
		short.Bits = short.Bits[:7]
		m.is("too few bits", func() any { return short.Keys(0, 0, 0) }, "[]")
		huge := &pulsecol.BlockColumns{Batch: math.MaxInt, Heads: math.MaxInt, Len: math.MaxInt, Rows: math.MaxInt, Group: 1, Bits: []uint32{1}}
		for _, i := range []int{0, 1, 1 << 20, math.MaxInt - 1} {
			m.does("huge sizes", func() { huge.Keys(i, i, i) })
		}
	},
	"pulsecol.Uniform.Mode":     modes(pulsecol.Uniform{}, pulsecol.Uniform{Eta: math.NaN()}, pulsecol.Uniform{Eta: -1, Refreshes: -1}, pulsecol.Uniform{Eta: math.Inf(1), Refreshes: math.MaxInt}),
	"pulsecol.Power.Mode":       modes(pulsecol.Power{}, pulsecol.Power{Eta: math.NaN()}, pulsecol.Power{Eta: -1, Refreshes: -1}, pulsecol.Power{Eta: math.Inf(1), Refreshes: math.MaxInt}),
	"pulsecol.Random.Mode":      modes(pulsecol.Random{}, pulsecol.Random{Eta: math.NaN()}, pulsecol.Random{Eta: -1, Refreshes: -1}, pulsecol.Random{Eta: math.Inf(1), Refreshes: math.MaxInt}),
	"pulsecol.Skip.Mode":        modes(pulsecol.Skip{}, pulsecol.Skip{Fraction: math.NaN()}, pulsecol.Skip{Fraction: -1}, pulsecol.Skip{Fraction: math.Inf(1)}),
	"pulsecol.Adaptive.Mode":    modes(pulsecol.Adaptive{}, pulsecol.Adaptive{Eta: math.NaN(), Threshold: math.NaN(), Refreshes: -1}),
	"pulsecol.Always.Mode":      modes(pulsecol.Always{}),
	"pulsecol.AlwaysDense.Mode": modes(pulsecol.AlwaysDense{}),

	"pulsecol.Uniform.String":       prints(pulsecol.Uniform{}, pulsecol.Uniform{Eta: math.NaN(), Refreshes: math.MinInt}),
	"pulsecol.Power.String":         prints(pulsecol.Power{}, pulsecol.Power{Eta: math.NaN(), Refreshes: math.MinInt}),
	"pulsecol.Random.String":        prints(pulsecol.Random{}, pulsecol.Random{Eta: math.NaN(), Refreshes: math.MinInt}),
	"pulsecol.Skip.String":          prints(pulsecol.Skip{}, pulsecol.Skip{Fraction: math.Inf(-1)}),
	"pulsecol.Adaptive.String":      prints(pulsecol.Adaptive{}, pulsecol.Adaptive{Eta: math.NaN(), Threshold: math.Inf(1)}),
	"pulsecol.Always.String":        prints(pulsecol.Always{}),
	"pulsecol.AlwaysDense.String":   prints(pulsecol.AlwaysDense{}),
	"pulsecol.Columns.String":       prints(pulsecol.Columns{}),
	"pulsecol.Blocks.String":        prints(pulsecol.Blocks{}, pulsecol.Blocks{Size: math.MinInt}),
	"pulsecol.SlidingWindow.String": prints(pulsecol.SlidingWindow{}, pulsecol.SlidingWindow{Width: math.MinInt}),
	"pulsecol.Streaming.String":     prints(pulsecol.Streaming{}, pulsecol.Streaming{Width: -1, SinkFraction: math.NaN()}),
	"pulsecol.SparseD.String":       prints(pulsecol.SparseD{}, pulsecol.SparseD{BlockSize: math.MinInt}),
	"pulsecol.Fixed.String":         prints(pulsecol.Fixed{}, pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{nil, {}}}),
	"pulsecol.Device.String":        prints(pulsecol.Device(99), pulsecol.Mode(99), pulsecol.Precision(99), op.SelectionKind(99), op.DType(99)),
})

var errOther = errors.New("an error of the caller")
