package task

import (
	"crypto/sha512"
	"encoding/binary"
	"math/bits"
	"slices"
)

// pyRandom is random.Random of Python 3: the Mersenne Twister MT19937, seeded with a string, and
// Python's functions of its output. train/heldout.py makes the held-out questions from a seed; only
// the same generator gives the same questions.
type pyRandom struct {
	state [624]uint32
	next  int
}

// newPyRandom is random.Random(seed).
func newPyRandom(seed string) *pyRandom {
	// Python reads the seed and its SHA-512 as one big-endian number, and gives the generator the
	// 32-bit words of that number, lowest first.
	sum := sha512.Sum512([]byte(seed))
	number := append([]byte(seed), sum[:]...)
	slices.Reverse(number)
	for len(number)%4 != 0 {
		number = append(number, 0)
	}
	key := make([]uint32, len(number)/4)
	for i := range key {
		key[i] = binary.LittleEndian.Uint32(number[4*i:])
	}

	// init_by_array of Matsumoto and Nishimura's mt19937ar.c.
	r := new(pyRandom)
	s := &r.state
	s[0] = 19650218
	for i := 1; i < len(s); i++ {
		s[i] = 1812433253*(s[i-1]^s[i-1]>>30) + uint32(i)
	}
	i, j := 1, 0
	advance := func() {
		if i++; i == len(s) {
			s[0] = s[len(s)-1]
			i = 1
		}
	}
	for range max(len(s), len(key)) {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1664525) + key[j] + uint32(j)
		j = (j + 1) % len(key)
		advance()
	}
	for range len(s) - 1 {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1566083941) - uint32(i)
		advance()
	}
	s[0] = 1 << 31
	r.next = len(s)
	return r
}

// uint32 is the next output of the generator.
func (r *pyRandom) uint32() uint32 {
	s := &r.state
	if r.next == len(s) {
		for i := range s {
			y := s[i]&(1<<31) | s[(i+1)%len(s)]&(1<<31-1)
			s[i] = s[(i+397)%len(s)] ^ y>>1 ^ -(y&1)&0x9908b0df
		}
		r.next = 0
	}
	y := s[r.next]
	r.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// below is random.Random._randbelow for 0 < n < 1<<32.
func (r *pyRandom) below(n int) int {
	k := bits.Len(uint(n))
	for {
		if v := int(r.uint32() >> (32 - k)); v < n {
			return v
		}
	}
}

// between is randint: a <= result <= b.
func (r *pyRandom) between(a, b int) int { return a + r.below(b+1-a) }

func (r *pyRandom) choice(from []string) string { return from[r.below(len(from))] }

// two is sample(from, 2).
func (r *pyRandom) two(from []string) (string, string) {
	n := len(from)
	i := r.below(n)
	if n <= 21 { // Python swaps within a copy of short lists, and draws again in long ones
		j := r.below(n - 1)
		if j == i {
			j = n - 1
		}
		return from[i], from[j]
	}
	for {
		if j := r.below(n); j != i {
			return from[i], from[j]
		}
	}
}
