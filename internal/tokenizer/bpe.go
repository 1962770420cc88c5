package tokenizer

import (
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// bpe turns a word into ids by byte-pair encoding (Sennrich et al., 2016, over
// bytes as in GPT-2): beginning with one token per byte, the pair of
// neighbours with the lowest rank is merged, the leftmost of equals, until no
// pair has a rank.
type bpe struct {
	bytes   [256]int32 // the token of each byte
	merges  map[pair]merge
	whole   map[string]int32 // words that need no merging; nil without ignore_merges
	cache   wordCache
	mergers sync.Pool
}

// pair is two neighbouring ids, the left one in the upper half: Go's map is fastest with
// keys of 64 bits.
type pair uint64

func newPair(left, right int32) pair { return pair(left)<<32 | pair(right) }

type merge struct{ rank, id int32 }

// append appends the ids of word to ids.
func (b *bpe) append(ids []int32, word string) []int32 {
	if id, ok := b.whole[word]; ok {
		return append(ids, id)
	}
	if len(word) > maxCachedWord {
		return b.merge(ids, word)
	}
	slot := b.cache.slot(word)
	if c := slot.Load(); c != nil && c.word == word {
		return append(ids, c.ids...)
	}
	n := len(ids)
	ids = b.merge(ids, word)
	slot.Store(&cachedWord{strings.Clone(word), slices.Clone(ids[n:])})
	return ids
}

// merge appends the ids of word to ids, without the cache. Its time is
// O(n log n): the candidates are kept in a heap and the symbols in a linked
// list, as one word can be a whole file (a DNA sequence, base64).
func (b *bpe) merge(ids []int32, word string) []int32 {
	m, _ := b.mergers.Get().(*merger)
	if m == nil {
		m = &merger{bpe: b}
	}
	ids = m.run(ids, word)
	b.mergers.Put(m)
	return ids
}

// merger is the state of merging one word.
type merger struct {
	bpe     *bpe
	symbols []symbol
	heap    []candidate
}

// symbol is a token of the word, so far. It keeps its place in the slice; one
// merged into its left neighbour is skipped by the links.
type symbol struct {
	id         int32
	prev, next int32 // indices; none is -1
	pair       merge // of it and the next symbol; rank noRank if they do not merge
}

const noRank = math.MaxInt32

// candidate is a pair to merge: the rank in the upper half, the index of its
// left symbol in the lower, so that the smallest is the one to take.
type candidate uint64

func (m *merger) run(ids []int32, word string) []int32 {
	m.symbols, m.heap = slices.Grow(m.symbols[:0], len(word)), slices.Grow(m.heap[:0], len(word))
	for i := range len(word) {
		m.symbols = append(m.symbols, symbol{id: m.bpe.bytes[word[i]], prev: int32(i - 1), next: int32(i + 1)})
	}
	m.symbols[len(word)-1].next = -1
	for i := range m.symbols {
		m.rate(int32(i))
	}
	for len(m.heap) > 0 {
		c := m.pop()
		i := int32(uint32(c))
		left := &m.symbols[i]
		// Symbols only grow, so an equal rank means the same pair. Another rank means that
		// the candidate is out of date.
		if left.pair.rank != int32(c>>32) {
			continue
		}
		right := &m.symbols[left.next]
		left.id, left.next = left.pair.id, right.next
		right.pair.rank = noRank
		if left.next >= 0 {
			m.symbols[left.next].prev = i
		}
		m.rate(i)
		if left.prev >= 0 {
			m.rate(left.prev)
		}
	}
	for i := int32(0); i >= 0; i = m.symbols[i].next {
		ids = append(ids, m.symbols[i].id)
	}
	return ids
}

// rate looks up the pair that begins at index i and makes it a candidate.
func (m *merger) rate(i int32) {
	s := &m.symbols[i]
	s.pair.rank = noRank
	if s.next < 0 {
		return
	}
	if found, ok := m.bpe.merges[newPair(s.id, m.symbols[s.next].id)]; ok {
		s.pair = found
		m.push(candidate(found.rank)<<32 | candidate(i))
	}
}

// push and pop make m.heap a binary heap. (container/heap would allocate for
// every candidate.)
func (m *merger) push(c candidate) {
	m.heap = append(m.heap, c)
	h, i := m.heap, len(m.heap)-1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent] <= c {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = c
}

func (m *merger) pop() candidate {
	h := m.heap
	top, c := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	m.heap = h
	if len(h) == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if c <= h[child] {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = c
	return top
}

// wordCache caches the ids of words. It is a hash table without chains: a word replaces the
// one in its slot, which bounds the memory (15 MB at most, about 4 MB in practice). A slot
// is one atomic pointer, so there are no locks.
type wordCache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []int32
}

const (
	cacheSlots    = 1 << 15 // a power of two
	maxCachedWord = 64      // bytes; longer words seldom recur
)

func newWordCache() wordCache {
	return wordCache{maphash.MakeSeed(), make([]atomic.Pointer[cachedWord], cacheSlots)}
}

func (c *wordCache) slot(word string) *atomic.Pointer[cachedWord] {
	return &c.slots[maphash.String(c.seed, word)%cacheSlots]
}
