package procgroup

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/pulsecol/pulsecol/internal/exec"
)

// chunk is how many elements are in one message.
const chunk = 1 << 14

// Group has the collectives that operators run. All ranks call the same ones in the same order: a
// name is what ranks compare, with the sizes.
var _ exec.Ranks = (*Group)(nil)

// AllGather copies part of every rank into whole, in the order of ranks.
func (g *Group) AllGather(name string, whole, part []float32) error {
	if err := g.checkWhole(len(whole), len(part)); err != nil {
		return err
	}
	n, size, rank := len(part), g.Size(), g.Rank()
	copy(whole[rank*n:], part)
	if size == 1 {
		return nil
	}
	r := g.ring
	return r.run(newCall(name, n), func() error {
		block := func(i int) []float32 {
			i = (i + size) % size
			return whole[i*n : (i+1)*n]
		}
		for step := range size - 1 { // each block goes around the ring
			sent := make(chan error, 1)
			go func() { sent <- send(r.to, block(rank-step)) }()
			err := receive(r.from, block(rank-step-1))
			if err != nil {
				r.close() // which ends the sending
			}
			if sendErr := <-sent; err == nil {
				err = sendErr
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// AllReduce replaces values by their sums over the ranks. Sums are made in the order of ranks, so
// that they are the same in all ranks and in all runs.
func (g *Group) AllReduce(name string, values []float32) error {
	size, rank := g.Size(), g.Rank()
	if size == 1 {
		return nil
	}
	r := g.ring
	return r.run(newCall(name, len(values)), func() error {
		if err := reduce(g, values); err != nil {
			return err
		}
		for part := range chunks(values) { // the sums go around the ring, from the last rank on
			if rank != size-1 {
				if err := receive(r.from, part); err != nil {
					return err
				}
			}
			if rank != size-2 {
				if err := send(r.to, part); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// ReduceScatter stores in part this rank's part of the sums of whole over the ranks. Sums are those
// of AllReduce.
func (g *Group) ReduceScatter(name string, part, whole []float32) error {
	if err := g.checkWhole(len(whole), len(part)); err != nil {
		return err
	}
	n, size, rank := len(part), g.Size(), g.Rank()
	if size == 1 {
		copy(part, whole)
		return nil
	}
	r := g.ring
	return r.run(newCall(name, len(whole)), func() error {
		if rank != size-1 {
			if err := reduce(g, whole); err != nil {
				return err
			}
			// The parts of the ranks after this one come first.
			for range size - 2 - rank {
				if err := forward(r.from, r.to, n); err != nil {
					return err
				}
			}
			return receive(r.from, part)
		}
		sums := make([]float32, len(whole))
		copy(sums, whole)
		if err := reduce(g, sums); err != nil {
			return err
		}
		copy(part, sums[rank*n:])
		for to := size - 2; to >= 0; to-- {
			if err := send(r.to, sums[to*n:(to+1)*n]); err != nil {
				return err
			}
		}
		return nil
	})
}

// reduce adds values from rank to rank. The last rank has the sums in values.
func reduce(g *Group, values []float32) error {
	r, last := g.ring, g.Rank() == g.Size()-1
	sums := make([]float32, min(chunk, len(values)))
	for part := range chunks(values) {
		sum := sums[:len(part)]
		if g.Rank() == 0 {
			copy(sum, part)
		} else {
			if err := receive(r.from, sum); err != nil {
				return err
			}
			for i, v := range part {
				sum[i] += v
			}
		}
		if last {
			copy(part, sum)
		} else if err := send(r.to, sum); err != nil {
			return err
		}
	}
	return nil
}

func (g *Group) checkWhole(whole, part int) error {
	if whole != g.Size()*part {
		return fmt.Errorf("%d values in a part and %d in the whole; want %d for %d ranks", part, whole, g.Size()*part, g.Size())
	}
	return nil
}

// newCall describes a collective by the end of its name, which tells operators apart.
func newCall(name string, n int) call {
	return call{Name: newText(name[max(0, len(name)-len(text64{})):]), Length: uint64(n)}
}

// chunks yields the parts of values that are messages.
func chunks(values []float32) func(func([]float32) bool) {
	return func(yield func([]float32) bool) {
		for len(values) > 0 {
			n := min(chunk, len(values))
			if !yield(values[:n]) {
				return
			}
			values = values[n:]
		}
	}
}

// send writes values, little-endian.
func send(w io.Writer, values []float32) error {
	var data []byte
	for part := range chunks(values) {
		data = data[:0]
		for _, v := range part {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// receive reads values.
func receive(r io.Reader, values []float32) error {
	var data []byte
	for part := range chunks(values) {
		if data == nil {
			data = make([]byte, 4*len(part))
		}
		data = data[:4*len(part)]
		if _, err := io.ReadFull(r, data); err != nil {
			return err
		}
		for i := range part {
			part[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
	}
	return nil
}

// forward sends n values on as they come.
func forward(from io.Reader, to io.Writer, n int) error {
	part := make([]float32, min(chunk, n))
	for n > 0 {
		part = part[:min(n, len(part))]
		if err := receive(from, part); err != nil {
			return err
		}
		if err := send(to, part); err != nil {
			return err
		}
		n -= len(part)
	}
	return nil
}
