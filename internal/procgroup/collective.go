package procgroup

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"unsafe"
)

// Float are the elements of collectives.
type Float interface{ float32 | float64 }

// chunk is how many elements are in one message.
const chunk = 1 << 14

// AllGather copies part of every rank into whole, in the order of ranks.
func AllGather[T Float](g *Group, whole, part []T) error {
	if err := g.checkWhole(len(whole), len(part)); err != nil {
		return err
	}
	n, size, rank := len(part), g.Size(), g.Rank()
	copy(whole[rank*n:], part)
	if size == 1 {
		return nil
	}
	r := g.ring
	return r.run(newCall[T](allGather, n), func() error {
		block := func(i int) []T {
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
func AllReduce[T Float](g *Group, values []T) error {
	size, rank := g.Size(), g.Rank()
	if size == 1 {
		return nil
	}
	r := g.ring
	return r.run(newCall[T](allReduce, len(values)), func() error {
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
func ReduceScatter[T Float](g *Group, part, whole []T) error {
	if err := g.checkWhole(len(whole), len(part)); err != nil {
		return err
	}
	n, size, rank := len(part), g.Size(), g.Rank()
	if size == 1 {
		copy(part, whole)
		return nil
	}
	r := g.ring
	return r.run(newCall[T](reduceScatter, len(whole)), func() error {
		if rank != size-1 {
			if err := reduce(g, whole); err != nil {
				return err
			}
			// The parts of the ranks after this one come first.
			for range size - 2 - rank {
				if err := forward[T](r.from, r.to, n); err != nil {
					return err
				}
			}
			return receive(r.from, part)
		}
		sums := make([]T, len(whole))
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
func reduce[T Float](g *Group, values []T) error {
	r, last := g.ring, g.Rank() == g.Size()-1
	sums := make([]T, min(chunk, len(values)))
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

func newCall[T Float](kind uint8, n int) call {
	var v T
	return call{Kind: kind, Size: uint8(unsafe.Sizeof(v)), Length: uint64(n)}
}

// chunks yields the parts of values that are messages.
func chunks[T Float](values []T) func(func([]T) bool) {
	return func(yield func([]T) bool) {
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
func send[T Float](w io.Writer, values []T) error {
	var data []byte
	for part := range chunks(values) {
		data = data[:0]
		switch part := any(part).(type) {
		case []float32:
			for _, v := range part {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
			}
		case []float64:
			for _, v := range part {
				data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
			}
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// receive reads values.
func receive[T Float](r io.Reader, values []T) error {
	var data []byte
	for part := range chunks(values) {
		size := int(unsafe.Sizeof(part[0]))
		if data == nil {
			data = make([]byte, size*len(part))
		}
		data = data[:size*len(part)]
		if _, err := io.ReadFull(r, data); err != nil {
			return err
		}
		switch part := any(part).(type) {
		case []float32:
			for i := range part {
				part[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
			}
		case []float64:
			for i := range part {
				part[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
			}
		}
	}
	return nil
}

// forward sends n values on as they come.
func forward[T Float](from io.Reader, to io.Writer, n int) error {
	part := make([]T, min(chunk, n))
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
