package pulsecol_test

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
)

// steps lists the steps, from 1, in which a schedule has a mode.
func steps(s pulsecol.Schedule, total int, m pulsecol.Mode) []int {
	var at []int
	for step := 1; step <= total; step++ {
		if s.Mode(step, total) == m {
			at = append(at, step)
		}
	}
	return at
}

// TestUniformPublished has the refresh steps of the paper's settings.
func TestUniformPublished(t *testing.T) {
	for _, c := range []struct {
		total, refreshes int
		window           float64
		want             []int
	}{
		{128, 0, 0, []int{1, 3, 5, 8, 10, 13, 15, 18, 20, 23, 25, 28, 30, 33, 35, 38}}, // the defaults: 16 in 0.3
		{128, 16, 0.3, []int{1, 3, 5, 8, 10, 13, 15, 18, 20, 23, 25, 28, 30, 33, 35, 38}},
		{128, 8, 0.3, []int{1, 6, 11, 16, 22, 27, 32, 38}},
		{256, 16, 0.3, []int{1, 6, 11, 16, 21, 26, 31, 36, 41, 46, 51, 56, 61, 66, 71, 76}},
		{256, 8, 0.3, []int{1, 11, 22, 33, 43, 54, 65, 76}},
		{512, 16, 0.3, []int{1, 11, 21, 31, 41, 51, 61, 71, 82, 92, 102, 112, 122, 132, 142, 153}},
		{512, 8, 0.3, []int{1, 22, 44, 66, 87, 109, 131, 153}},
		{1024, 16, 0.3, []int{1, 21, 41, 62, 82, 103, 123, 143, 164, 184, 205, 225, 245, 266, 286, 307}},
		{1024, 8, 0.3, []int{1, 44, 88, 132, 175, 219, 263, 307}},
		{32, 16, 0.3, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}}, // W = 9: equal steps count once
		{10, 2, 0.3, []int{1, 3}},
		{100, 2, 0.29, []int{1, 29}}, // 0.29·100 is 28.999… in float64
		{100, 1, 1, []int{1}},
		{100, 2, 1, []int{1, 100}},
		{1, 16, 0.3, []int{1}},
		{2, 16, 0.3, []int{1}},
		{2, 16, 1, []int{1, 2}},
		{3, 2, 1e-9, []int{1}},
		{5, 100, 1, []int{1, 2, 3, 4, 5}},
	} {
		s := pulsecol.Uniform{Eta: c.window, Refreshes: c.refreshes}
		if diff := cmp.Diff(c.want, steps(s, c.total, pulsecol.Refresh)); diff != "" {
			t.Errorf("%v of %d steps (-want +got):\n%s", s, c.total, diff)
		}
		if got := len(steps(s, c.total, pulsecol.Reuse)); got != c.total-len(c.want) {
			t.Errorf("%v of %d steps: %d reuses, want %d", s, c.total, got, c.total-len(c.want))
		}
	}
}

// TestUniformFormula compares the schedule with the paper's formula in exact
// arithmetic.
func TestUniformFormula(t *testing.T) {
	for _, window := range []string{"0.01", "0.1", "0.29", "0.3", "0.57", "0.7", "0.99", "1"} {
		share, _ := new(big.Rat).SetString(window)
		eta, _ := share.Float64()
		for _, total := range []int{1, 2, 3, 7, 10, 33, 100, 128, 1000} {
			for _, refreshes := range []int{1, 2, 3, 8, 16, 40, 1000} {
				exact := new(big.Rat).Mul(share, big.NewRat(int64(total), 1))
				w := max(1, int(new(big.Int).Quo(exact.Num(), exact.Denom()).Int64()))
				want := []int{1}
				for r := 2; r <= refreshes; r++ {
					if at := 1 + (r-1)*(w-1)/(refreshes-1); at != want[len(want)-1] {
						want = append(want, at)
					}
				}
				got := steps(pulsecol.Uniform{Eta: eta, Refreshes: refreshes}, total, pulsecol.Refresh)
				if !slices.Equal(got, want) {
					t.Fatalf("window %s, %d refreshes, %d steps: %v, want %v", window, refreshes, total, got, want)
				}
			}
		}
	}
}

// TestPowerFormula: densest at the start, 1 + ⌊(r/(R-1))²(W-1)⌋.
func TestPowerFormula(t *testing.T) {
	for _, c := range []struct {
		total, refreshes int
		window           float64
		want             []int
	}{
		{100, 5, 1, []int{1, 7, 25, 56, 100}},
		{128, 8, 0.3, []int{1, 4, 7, 13, 19, 28, 38}}, // 37/49 of a step rounds down onto step 1
		{128, 1, 0.3, []int{1}},
		{1, 16, 0.3, []int{1}},
		{2, 3, 1, []int{1, 2}},
		{10, 100, 0.3, []int{1, 2, 3}},
	} {
		got := steps(pulsecol.Power{Eta: c.window, Refreshes: c.refreshes}, c.total, pulsecol.Refresh)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c, diff)
		}
	}
}

// TestRandom: Refreshes distinct steps among the first Eta of the generation, or all of
// these if they are fewer; step 1 is one of them, and equal seeds give equal steps.
func TestRandom(t *testing.T) {
	for _, total := range []int{1, 2, 3, 10, 128, 1000} {
		for _, refreshes := range []int{1, 2, 8, 16, 500} {
			for _, window := range []float64{0.01, 0.3, 1} {
				s := pulsecol.Random{Eta: window, Refreshes: refreshes, Seed: 7}
				w := max(1, int(math.Floor(window*float64(total)+1e-9)))
				got := steps(s, total, pulsecol.Refresh)
				if len(got) != min(refreshes, w) || got[0] != 1 || got[len(got)-1] > w {
					t.Errorf("%v of %d steps: %v, want %d of the first %d with step 1", s, total, got, min(refreshes, w), w)
				}
				if again := steps(s, total, pulsecol.Refresh); !slices.Equal(got, again) {
					t.Errorf("%v of %d steps: %v, then %v", s, total, got, again)
				}
			}
		}
	}
	// Every later step that may refresh is drawn for some seed, and seeds differ.
	seen, differ := map[int]bool{}, map[string]bool{}
	for seed := range uint64(200) {
		at := steps(pulsecol.Random{Eta: 1, Refreshes: 3, Seed: seed}, 10, pulsecol.Refresh)
		for _, step := range at {
			seen[step] = true
		}
		differ[fmt.Sprint(at)] = true
	}
	if len(seen) != 10 || len(differ) < 20 {
		t.Errorf("200 seeds drew %d of 10 steps and %d different sets of 36", len(seen), len(differ))
	}
}

// TestSkip: SparseD's full steps, the one that builds the mask included.
func TestSkip(t *testing.T) {
	for _, c := range []struct {
		total, full int
		fraction    float64
	}{
		{128, 27, 0}, {128, 27, 0.2}, {256, 53, 0.2}, {512, 104, 0.2}, {1024, 206, 0.2}, {10, 4, 0.2},
		{100, 31, 0.29},
		{1, 1, 0.2}, {2, 2, 0.2}, {3, 2, 0.2}, {4, 4, 0.9}, // never sparse, or never built
	} {
		s := pulsecol.Skip{Fraction: c.fraction}
		dense, refresh := steps(s, c.total, pulsecol.Dense), steps(s, c.total, pulsecol.Refresh)
		if got := len(dense) + len(refresh); got != c.full {
			t.Errorf("%v of %d steps: %d full steps, want %d", s, c.total, got, c.full)
		}
		if len(refresh) > 1 || len(refresh) == 1 && refresh[0] != c.full {
			t.Errorf("%v of %d steps refreshes at %v, want the last of %d full steps", s, c.total, refresh, c.full)
		}
	}
}

func TestConstantSchedules(t *testing.T) {
	for _, total := range []int{1, 2, 9} {
		if got := steps(pulsecol.Always{}, total, pulsecol.Refresh); len(got) != total {
			t.Errorf("Always refreshes at %v of %d", got, total)
		}
		if got := steps(pulsecol.AlwaysDense{}, total, pulsecol.Dense); len(got) != total {
			t.Errorf("AlwaysDense is dense at %v of %d", got, total)
		}
	}
}

// TestSchedulesTakeAnything: Mode is exported, so it must not panic on values that
// Validate refuses or on steps that do not exist.
func TestSchedulesTakeAnything(t *testing.T) {
	numbers := []int{math.MinInt, math.MinInt32, -5, -1, 0, 1, 2, 3, 100, math.MaxInt - 1, math.MaxInt}
	shares := []float64{math.NaN(), math.Inf(-1), -1, 0, 1e-300, 0.5, math.Nextafter(1, 0), 1, 2, 1e9, math.Inf(1)}
	for _, n := range numbers {
		for _, share := range shares {
			for _, step := range numbers {
				for _, total := range numbers {
					for _, s := range []pulsecol.Schedule{
						pulsecol.Uniform{Eta: share, Refreshes: n}, pulsecol.Power{Eta: share, Refreshes: n}, pulsecol.Skip{Fraction: share},
						pulsecol.Random{Eta: share, Refreshes: n}, pulsecol.Adaptive{Eta: share, Refreshes: n},
					} {
						s.Mode(step, total)
					}
				}
			}
		}
	}
}

// TestSchedulesOfHugeTotals: a generation may have as many steps as an int can count.
func TestSchedulesOfHugeTotals(t *testing.T) {
	for _, total := range []int{1 << 24, 1e8, math.MaxInt - 1, math.MaxInt} {
		want := func(s pulsecol.Schedule, step int, mode pulsecol.Mode) {
			t.Helper()
			if got := s.Mode(step, total); got != mode {
				t.Errorf("%v, step %d of %d: %v, want %v", s, step, total, got, mode)
			}
		}
		whole := pulsecol.Uniform{Eta: 1, Refreshes: 16384}
		halves := pulsecol.Uniform{Eta: 1, Refreshes: 3}
		power := pulsecol.Power{Eta: 1, Refreshes: 3}
		for s, at := range map[pulsecol.Schedule][]int{
			whole:  {1, 1 + int((uint64(total)-1)/16383), total},
			halves: {1, 1 + (total-1)/2, total},
			power:  {1, 1 + (total-1)/4, total},
		} {
			for _, step := range at {
				want(s, step, pulsecol.Refresh)
			}
			want(s, 2, pulsecol.Reuse)
			want(s, total-1, pulsecol.Reuse)
		}
		want(pulsecol.Skip{Fraction: math.Nextafter(1, 0)}, 1, pulsecol.Dense)
		random := pulsecol.Random{Eta: 1, Refreshes: 16384, Seed: 3}
		want(random, 1, pulsecol.Refresh)
		random.Mode(2, total)
		random.Mode(total, total)
	}
	for total := 1000; total < math.MaxInt/10; total *= 10 { // 0.29 of 1e8 is 28999999.999999996 in float64
		last := total / 100 * 29
		for s, step := range map[pulsecol.Schedule]int{
			pulsecol.Uniform{Eta: 0.29, Refreshes: 2}: last, pulsecol.Skip{Fraction: 0.29}: last + 2,
		} {
			if got := s.Mode(step, total); float64(total) < 1<<50 && got != pulsecol.Refresh {
				t.Errorf("%v, step %d of %d: %v, want refresh", s, step, total, got)
			}
		}
	}
}

// TestRandomIsUniform: each pair of later steps is drawn about equally often.
func TestRandomIsUniform(t *testing.T) {
	const steps, seeds = 7, 6000
	pairs := map[[2]int]int{}
	for seed := range uint64(seeds) {
		at := []int{}
		s := pulsecol.Random{Eta: 1, Refreshes: 3, Seed: seed}
		for step := 2; step <= steps; step++ {
			if s.Mode(step, steps) == pulsecol.Refresh {
				at = append(at, step)
			}
		}
		pairs[[2]int(at)]++
	}
	// Six standard deviations of a binomial distribution.
	const of = 15 // pairs of six steps
	want, off := seeds/float64(of), 6*math.Sqrt(seeds/float64(of)*(1-1/float64(of)))
	for pair, n := range pairs {
		if math.Abs(float64(n)-want) > off {
			t.Errorf("steps %v were drawn %d times of %d, want %v ± %.0f", pair, n, seeds, want, off)
		}
	}
	if len(pairs) != of {
		t.Errorf("%d pairs were drawn, want %d", len(pairs), of)
	}
}

// FuzzSchedules: for any fields, step and total, a schedule does not panic, gives the same
// mode twice and at most its number of refreshes, of which step 1 is the first.
func FuzzSchedules(f *testing.F) {
	f.Add(0.3, 16, uint64(1), 128, 1)
	f.Add(1.0, 1, uint64(0), math.MaxInt, 2)
	f.Add(math.NaN(), -1, uint64(7), 0, 0)
	f.Add(1.0, math.MaxInt, uint64(2), math.MaxInt, math.MaxInt)
	f.Add(math.Nextafter(1, 0), 16384, uint64(9), math.MaxInt/3, math.MaxInt/5)
	f.Fuzz(func(t *testing.T, share float64, refreshes int, seed uint64, total, step int) {
		most := max(1, min(refreshes, 1<<14))
		if refreshes == 0 {
			most = 16
		}
		for _, s := range []pulsecol.Schedule{
			pulsecol.Uniform{Eta: share, Refreshes: refreshes}, pulsecol.Power{Eta: share, Refreshes: refreshes},
			pulsecol.Random{Eta: share, Refreshes: refreshes, Seed: seed}, pulsecol.Adaptive{Eta: share, Refreshes: refreshes},
			pulsecol.Skip{Fraction: share}, pulsecol.Always{}, pulsecol.AlwaysDense{},
		} {
			if first, second := s.Mode(step, total), s.Mode(step, total); first != second || first > pulsecol.Reuse {
				t.Fatalf("%+v, step %d of %d: %v, then %v", s, step, total, first, second)
			}
			count := 0
			from := max(1, min(step, math.MaxInt-100)) - 1
			for i := range min(max(total, 1), 100) { // the first steps, and some from step on
				if s.Mode(i+1, total) == pulsecol.Refresh {
					count++
				}
				if from >= 100 && s.Mode(from+i, total) == pulsecol.Refresh {
					count++
				}
			}
			switch s.(type) {
			case pulsecol.Always, pulsecol.AlwaysDense:
				continue
			case pulsecol.Skip:
				most = 1
			default:
				if s.Mode(1, total) != pulsecol.Refresh {
					t.Fatalf("%+v: step 1 of %d is %v", s, total, s.Mode(1, total))
				}
			}
			if count > most {
				t.Fatalf("%+v: %d refreshes in some of %d steps, want at most %d", s, count, total, most)
			}
		}
	})
}

// BenchmarkRandomMode measures Mode of Random, whose time does not depend on the number of
// steps.
func BenchmarkRandomMode(b *testing.B) {
	for _, total := range []int{1 << 7, 1 << 24, math.MaxInt} {
		for _, refreshes := range []int{16, 16384} {
			b.Run(fmt.Sprintf("steps=%d/refreshes=%d", total, refreshes), func(b *testing.B) {
				s := pulsecol.Random{Eta: 1, Refreshes: refreshes}
				for b.Loop() {
					s.Mode(2, total)
				}
			})
		}
	}
}

func TestScheduleStrings(t *testing.T) {
	for want, s := range map[string]fmt.Stringer{
		"uniform, 16 refreshes in the first 0.3": pulsecol.Uniform{},
		"uniform, 8 refreshes in the first 0.5":  pulsecol.Uniform{Eta: 0.5, Refreshes: 8},
		"random, 16 refreshes in the first 0.3":  pulsecol.Random{},
		"power, 4 refreshes in the first 0.3":    pulsecol.Power{Refreshes: 4},
		"skip 0.2":                               pulsecol.Skip{},
		"always":                                 pulsecol.Always{},
		"always dense":                           pulsecol.AlwaysDense{},
	} {
		if got := s.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
