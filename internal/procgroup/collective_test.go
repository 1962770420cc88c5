package procgroup

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// groups returns a group whose ranks are all in this process, and closes it with the test.
func groups(t testing.TB, size int) []*Group {
	t.Helper()
	all := make([]*Group, size)
	address := "127.0.0.1:" + unusedPort(t)
	var joined sync.WaitGroup
	for rank := range size {
		joined.Go(func() {
			var err error
			if all[rank], err = Join(t.Context(), Place{Rank: rank, Size: size, Address: address}, Options{Timeout: 20 * time.Second}); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	joined.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// inAll calls do in all ranks at once, and then closes the group.
func inAll(t testing.TB, all []*Group, do func(*Group) error) {
	t.Helper()
	var done sync.WaitGroup
	for _, g := range all {
		done.Go(func() {
			if err := g.Close(do(g)); err != nil {
				t.Errorf("rank %d of %d: %v", g.Rank(), g.Size(), err)
			}
		})
	}
	done.Wait()
}

// TestCollectives: every element of every rank is where it belongs, and sums are those of a loop over
// the ranks, bit by bit.
func TestCollectives(t *testing.T) {
	for size := 1; size <= 5; size++ {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			inAll(t, groups(t, size), func(g *Group) error {
				for _, n := range []int{0, 1, 3, chunk - 1, chunk, chunk + 1, 3*chunk + 7} {
					if err := checkCollectives(g, n); err != nil {
						return fmt.Errorf("%d values: %w", n, err)
					}
				}
				return nil
			})
		})
	}
}

// values returns what a rank has: numbers whose sums depend on the order.
func values(rank, n int) []float32 {
	r := rand.New(rand.NewPCG(uint64(rank), uint64(n)))
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(r.NormFloat64() * math.Pow(10, float64(r.IntN(12))))
	}
	return out
}

func checkCollectives(g *Group, n int) error {
	size := g.Size()
	var concatenated, sums []float32
	for rank := range size {
		v := values(rank, n)
		concatenated = append(concatenated, v...)
		if rank == 0 {
			sums = v
			continue
		}
		for i := range sums {
			sums[i] += v[i]
		}
	}
	whole := make([]float32, size*n)
	if err := g.AllGather("x", whole, values(g.Rank(), n)); err != nil {
		return err
	}
	if err := same("all-gather", whole, concatenated); err != nil {
		return err
	}
	reduced := values(g.Rank(), n)
	if err := g.AllReduce("x", reduced); err != nil {
		return err
	}
	if err := same("all-reduce", reduced, sums); err != nil {
		return err
	}
	n -= n % size
	mine := values(g.Rank(), n)
	before := append([]float32(nil), mine...)
	part := make([]float32, n/size)
	if err := g.ReduceScatter("x", part, mine); err != nil {
		return err
	}
	if err := same("operand of reduce-scatter", mine, before); err != nil {
		return err
	}
	sums = make([]float32, n)
	for rank := range size {
		for i, v := range values(rank, n) {
			sums[i] += v
		}
	}
	return same("reduce-scatter", part, sums[g.Rank()*len(part):][:len(part)])
}

func same(name string, got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d values, want %d", name, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("%s: value %d is %v, want %v", name, i, got[i], want[i])
		}
	}
	return nil
}

// TestMismatch: ranks that run other collectives are an error, and so are sizes that do not fit.
func TestMismatch(t *testing.T) {
	all := groups(t, 3)
	var done sync.WaitGroup
	for _, g := range all {
		done.Go(func() {
			if err := g.AllGather("x", make([]float32, 7), make([]float32, 2)); err == nil || !strings.Contains(err.Error(), "2 values in a part and 7 in the whole; want 6") {
				t.Errorf("rank %d: %v", g.Rank(), err)
			}
			if err := g.ReduceScatter("x", make([]float32, 2), make([]float32, 5)); err == nil {
				t.Errorf("rank %d: no error", g.Rank())
			}
			n := 10
			if g.Rank() == 1 {
				n = 11
			}
			err := g.AllReduce("x", make([]float32, n))
			if err == nil || g.Rank() == 1 && !strings.Contains(err.Error(), "rank 1, is at collective 1, x of 11 values, and rank 0 at collective 1, x of 10 values") {
				t.Errorf("rank %d: %v", g.Rank(), err)
			}
			if again := g.AllReduce("x", make([]float32, 1)); again == nil || again.Error() != err.Error() {
				t.Errorf("rank %d: %v after %v", g.Rank(), again, err)
			}
			_ = g.Close(err) // says again why
		})
	}
	done.Wait()
}

// TestCollectiveCanceled: the end of Join's context ends collectives that wait, in all ranks.
func TestCollectiveCanceled(t *testing.T) {
	address := "127.0.0.1:" + unusedPort(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var done sync.WaitGroup
	for rank := range 3 {
		done.Go(func() {
			own := t.Context()
			if rank == 1 {
				own = ctx
			}
			g, err := Join(own, Place{Rank: rank, Size: 3, Address: address}, Options{})
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			for err == nil {
				if rank == 1 {
					time.AfterFunc(20*time.Millisecond, cancel)
				}
				if rank == 2 { // the others wait for it
					<-g.Context().Done()
				}
				err = g.AllReduce("x", make([]float32, 1000))
			}
			want := "rank 1 failed: interrupted"
			if rank == 1 {
				want = "context canceled"
			}
			if err = g.Close(err); err == nil || err.Error() != want {
				t.Errorf("rank %d: %v, want %s", rank, err, want)
			}
		})
	}
	done.Wait()
}

func BenchmarkAllReduce(b *testing.B) {
	const n = 1 << 20
	b.SetBytes(4 * n)
	rounds := b.N
	inAll(b, groups(b, 4), func(g *Group) error {
		values := make([]float32, n)
		for range rounds {
			if err := g.AllReduce("x", values); err != nil {
				return err
			}
		}
		return nil
	})
}
