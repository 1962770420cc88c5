package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// slowMerge is BPE by its definition.
func slowMerge(b *bpe, word string) []int32 {
	var ids []int32
	for i := range len(word) {
		ids = append(ids, b.bytes[word[i]])
	}
	for {
		best, at := merge{rank: noRank}, 0
		for i := range len(ids) - 1 {
			if m, ok := b.merges[newPair(ids[i], ids[i+1])]; ok && m.rank < best.rank {
				best, at = m, i
			}
		}
		if best.rank == noRank {
			return ids
		}
		ids = slices.Replace(ids, at, at+2, best.id)
	}
}

// randomMerges has count merges over a few letters, each of tokens before it
// and in an order that training would not give.
func randomMerges(r *rand.Rand, letters string, count int) *bpe {
	b := &bpe{merges: map[pair]merge{}, cache: newWordCache()}
	tokens := strings.Split(letters, "")
	ids := map[string]int32{}
	for i := range b.bytes {
		b.bytes[i] = int32(i)
	}
	for _, l := range tokens {
		ids[l] = int32(l[0])
	}
	ranks := r.Perm(count)
	for i := range count {
		left, right := tokens[r.IntN(len(tokens))], tokens[r.IntN(len(tokens))]
		content := left + right
		if _, ok := ids[content]; !ok {
			ids[content] = int32(256 + i)
			tokens = append(tokens, content)
		}
		b.merges[newPair(ids[left], ids[right])] = merge{int32(ranks[i]), ids[content]}
	}
	return b
}

func TestMergeAgainstDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		b := randomMerges(r, "abc"[:1+r.IntN(3)], 1+r.IntN(60))
		for _, n := range []int{1, 2, 3, 5, 17, maxCachedWord, maxCachedWord + 1, 200} {
			word := make([]byte, n)
			for i := range word {
				word[i] = "abcd"[r.IntN(4)]
			}
			want := slowMerge(b, string(word))
			for range 2 { // the second time from the cache
				if got := b.append([]int32{-1}, string(word)); !slices.Equal(got[1:], want) || got[0] != -1 {
					t.Fatalf("%q with %v: %v, want -1 and %v", word, b.merges, got, want)
				}
			}
		}
	}
}

// TestLongWord also tests the time: a quadratic merge would run into the test's timeout.
func TestLongWord(t *testing.T) {
	tok := openTestdata(t, "qwen.json")
	const unit = "internationalization"
	word := strings.Repeat(unit, 1<<20/len(unit))
	ids, err := tok.Encode(word)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tok.Decode(ids, false); err != nil || got != word {
		t.Errorf("decoded to %d bytes, %v; want the %d of the word", len(got), err, len(word))
	}
	// Merges do not reach far: the beginning is that of a short word.
	want := slowMerge(&tok.bpe, strings.Repeat(unit, 20))
	if n := len(want) / 2; !slices.Equal(ids[:n], want[:n]) {
		t.Errorf("begins %v, want %v", ids[:n], want[:n])
	}
}

// TestCacheCollision puts many more words into the cache than it has slots.
func TestCacheCollision(t *testing.T) {
	b := randomMerges(rand.New(rand.NewPCG(3, 4)), "abc", 40)
	word := []byte("aaaaaaaaaaa")
	for range 3 * cacheSlots {
		for i := range word { // count in base 3
			if word[i]++; word[i] <= 'c' {
				break
			}
			word[i] = 'a'
		}
		got := b.append(nil, string(word))
		if want := slowMerge(b, string(word)); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", word, got, want)
		}
	}
}
