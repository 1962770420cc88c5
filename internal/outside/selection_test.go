package outside_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// keep is max(1, ⌊(1-ρ)·n⌋), computed in float64 and then rounded down.
func keep(sparsity float64, n int) int { return max(1, int(math.Floor((1-sparsity)*float64(n)))) }

// topK lists the k candidates with the highest scores, of equal ones those with the
// smaller index.
func topK(scores []float64, candidates []int, k int) []int {
	order := slices.Clone(candidates)
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(scores[y], scores[x]) })
	order = order[:min(k, len(order))]
	slices.Sort(order)
	return order
}

// isTopK returns an error unless selected are the k candidates with the highest scores, as
// far as their errors let one tell. Scores without an error decide ties by the index.
func isTopK(scores array, candidates []int, k int, selected []int) error {
	if want := min(k, len(candidates)); len(selected) != want {
		return fmt.Errorf("%d are selected, want %d of %d", len(selected), want, len(candidates))
	}
	picked := map[int]bool{}
	for _, j := range selected {
		picked[j] = true
	}
	worst, at := math.Inf(1), -1 // the most that the weakest of the selected may have
	for _, j := range candidates {
		if s := scores.v[j] + scores.e[j]; picked[j] && s < worst {
			worst, at = s, j
		}
	}
	found := 0
	for _, j := range candidates {
		if picked[j] {
			found++
		} else if least := scores.v[j] - scores.e[j]; least > worst {
			return fmt.Errorf("%d is selected with a score of at most %g, and %d is not with at least %g", at, worst, j, least)
		}
	}
	if found != len(selected) {
		return fmt.Errorf("%v are selected, not all of them from %v", selected, candidates)
	}
	if exactly := topK(scores.v, candidates, k); isExact(scores) && !slices.Equal(exactly, selected) {
		return fmt.Errorf("%v are selected, want %v", selected, exactly)
	}
	return nil
}

func isExact(a array) bool { return !slices.ContainsFunc(a.e, func(e float64) bool { return e != 0 }) }

// blockSums are the sums of the scores of blocks of size keys, from key first on. blocks
// lists those with a candidate.
func blockSums(scores array, candidates []int, first, size int) (sums array, blocks []int) {
	sums = newArray((len(scores.v) - first + size - 1) / size)
	for _, j := range candidates {
		if j < first {
			continue
		}
		at := (j - first) / size
		sums.v[at] += scores.v[j]
		sums.e[at] += scores.e[j]
		if !slices.Contains(blocks, at) {
			blocks = append(blocks, at)
		}
	}
	for at, e := range sums.e {
		if e != 0 {
			sums.e[at] += unit * float64(size+4) * sums.v[at]
		}
	}
	return sums, blocks
}

// blocksOf returns the blocks of size keys, from key first on, whose candidates are all
// among keys, and an error if one has some of them alone.
func blocksOf(keys, candidates []int, first, size int) (blocks []int, err error) {
	in, of := map[int]int{}, map[int]int{}
	for _, j := range candidates {
		if j >= first {
			of[(j-first)/size]++
			if slices.Contains(keys, j) {
				in[(j-first)/size]++
			}
		}
	}
	for at, n := range in {
		if n != of[at] {
			return nil, fmt.Errorf("block %d has %d of its %d keys", at, n, of[at])
		}
		blocks = append(blocks, at)
	}
	slices.Sort(blocks)
	return blocks, nil
}

// sparseD is the choice of SparseD for sequences of n tokens, generated of them at the
// end, in blocks of size keys.
type sparseD struct {
	sparsity           float64
	n, size, generated int
}

// first is the first key of the generated part: of the first block that lies wholly in
// it, or of the last block of all.
func (s sparseD) first() int {
	blocks := (s.n + s.size - 1) / s.size
	return s.size * min(blocks-1, max(0, (s.n-s.generated+s.size-1)/s.size))
}

// quota is max(1, ⌊(1-ρ)·B⌋+1) of B blocks, the floor of the decimal number.
func (s sparseD) quota(blocks int) int {
	return min(blocks, max(1, int(math.Floor((1-s.sparsity)*float64(blocks)+1e-9))+1))
}

// check returns an error unless keys are the choice for a group with these scores over
// all keys and over the generated part. candidates are the keys without padding, which
// ranks with a score of 0.
func (s sparseD) check(scores, generated array, candidates, keys []int) error {
	all := make([]int, s.n)
	for j := range all {
		all[j] = j
	}
	first, blocks := s.first(), (s.n+s.size-1)/s.size
	last := first / s.size // the prompt's blocks are those before
	for _, part := range []struct {
		name  string
		from  int
		s     array
		quota int
	}{{"all", 0, scores, s.quota(blocks)}, {"the generated part", first, generated, s.quota(blocks - last)}} {
		sums, ranked := blockSums(part.s, all, part.from, s.size)
		most := sums.v
		selected, err := blocksOf(keys, candidates, part.from, s.size)
		if err != nil {
			return err
		}
		if part.from == 0 { // picks inside the generated part are thrown away
			selected = slices.DeleteFunc(selected, func(at int) bool { return at >= last })
		}
		if err := s.consistent(sums, ranked, part.quota, selected, candidates, part.from, part.from == 0, last); err != nil {
			return fmt.Errorf("ranking of %s, sums %.3g: %w", part.name, most, err)
		}
	}
	return nil
}

// consistent returns an error unless the selected blocks may be what is left of the quota
// best. Of these, blocks of padding alone do not show, and in the ranking of all nor do
// blocks from last on.
func (s sparseD) consistent(sums array, ranked []int, quota int, selected, candidates []int, from int, prompt bool, last int) error {
	hidden := func(at int) bool {
		return prompt && at >= last || !slices.ContainsFunc(candidates, func(j int) bool { return j >= from && (j-from)/s.size == at })
	}
	for _, at := range ranked {
		if hidden(at) {
			continue
		}
		// How many blocks rank before this one for certain, and how many may.
		before, maybe := 0, 0
		for _, other := range ranked {
			switch {
			case other == at:
			case sums.v[other]-sums.e[other] > sums.v[at]+sums.e[at],
				sums.v[other] == sums.v[at] && sums.e[other] == 0 && sums.e[at] == 0 && other < at:
				before++
				maybe++
			case sums.v[other]+sums.e[other] >= sums.v[at]-sums.e[at] &&
				!(sums.v[other] == sums.v[at] && sums.e[other] == 0 && sums.e[at] == 0):
				maybe++
			}
		}
		switch in := slices.Contains(selected, at); {
		case in && before >= quota:
			return fmt.Errorf("block %d is kept, with %d before it and a quota of %d", at, before, quota)
		case !in && maybe < quota:
			return fmt.Errorf("block %d is not kept, with at most %d before it and a quota of %d", at, maybe, quota)
		}
	}
	return nil
}

// window reports whether a window of the given width, with the first share of n keys
// besides, lets query i read key j.
func window(width int, sinks float64, n, i, j int) bool {
	return max(i-j, j-i) <= width/2 || float64(j) < math.Ceil(sinks*float64(n)-1e-9)
}
