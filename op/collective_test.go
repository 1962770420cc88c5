package op_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/procgroup"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ranksVariable marks the processes of TestCollectives.
const ranksVariable = "PULSECOL_TEST_RANKS"

// TestCollectives runs TestRank in processes of one group.
func TestCollectives(t *testing.T) {
	for size := 2; size <= 5; size++ {
		var said bytes.Buffer
		group := procgroup.Local{
			Size: size, Args: []string{os.Args[0], "-test.run=^TestRank$"}, Env: append(os.Environ(), ranksVariable+"=1"),
			Stdout: &said, Stderr: &said,
		}
		if err := group.Run(t.Context()); err != nil || !strings.Contains(said.String(), "PASS") {
			t.Errorf("%d ranks: %v\n%s", size, err, said.String())
		}
	}
}

// TestRank is the program of the processes: it runs graphs with collectives on tape machines, twice
// and with and without a workspace, and compares with what it knows of the other ranks' inputs.
func TestRank(t *testing.T) {
	if _, ok := os.LookupEnv(ranksVariable); !ok {
		t.Skip("is for the processes of another test")
	}
	place, _, err := procgroup.FromEnv(os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	g, err := procgroup.Join(t.Context(), place, procgroup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	checkCollectives(t, g, g.Rank(), g.Size())
	if t.Failed() {
		err = errors.New("wrong results")
	}
	if err := g.Close(err); err != nil {
		t.Error(err)
	}
	if place.Rank > 0 && t.Failed() { // the standard output is that of rank 0 alone
		fmt.Fprintf(os.Stderr, "rank %d has failed\n", place.Rank)
	}
}

// TestAlone: without ranks, collectives return what they get.
func TestAlone(t *testing.T) { checkCollectives(t, nil, 0, 1) }

// rankInput is the input of a rank in a run.
func rankInput(rank, run int, shape []int) []float32 {
	return attncase.Normal(attncase.Rand(uint64(100*run+rank)), tensor.Shape(shape).TotalSize(), 1)
}

func checkCollectives(t *testing.T, ranks op.Ranks, rank, size int) {
	for _, shape := range [][]int{{6, 60, 2, 3}, {60, 2, 60}, {3, 60}, {120}} {
		for axis := range shape {
			for _, planned := range []bool{false, true} {
				checkAxis(t, ranks, rank, size, shape, axis, planned)
			}
		}
	}
}

// checkAxis runs a graph with all collectives of x, and of a sum that nothing else reads.
func checkAxis(t *testing.T, ranks op.Ranks, rank, size int, shape []int, axis int, planned bool) {
	g := gorgonia.NewGraph()
	x := input(g, "x", dense(rankInput(rank, 0, shape), shape...))
	dims := len(shape)
	apply := func(o gorgonia.Op, err error) func(*gorgonia.Node) *gorgonia.Node {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return func(in *gorgonia.Node) *gorgonia.Node {
			t.Helper()
			return must(op.Apply(o, in))(t)
		}
	}
	var gathered, sum, part, whole, back gorgonia.Value
	gorgonia.Read(apply(op.NewAllGather("gather", dims, axis, ranks))(x), &gathered)
	twice := apply(op.NewAllReduce("sum", dims, ranks))(x)
	twice = apply(op.NewAllReduce("sum of sums", dims, ranks))(twice)
	gorgonia.Read(twice, &sum)
	forth := apply(op.NewAllGather("forth", dims, axis, ranks))(x) // which a workspace places
	gorgonia.Read(apply(op.NewReduceScatter("back", dims, axis, ranks))(forth), &back)
	divides := shape[axis]%size == 0
	if divides {
		scattered := apply(op.NewReduceScatter("scatter", dims, axis, ranks))(x)
		gorgonia.Read(scattered, &part)
		gorgonia.Read(apply(op.NewAllGather("gather sums", dims, axis, ranks))(scattered), &whole)
	} else if _, err := op.Apply(must(op.NewReduceScatter("scatter", dims, axis, ranks))(t), x); !errors.Is(err, op.ErrShape) || !strings.Contains(err.Error(), fmt.Sprintf("%d ranks do not divide", size)) {
		t.Errorf("scatter of %v along %d: %v", shape, axis, err)
	}
	if planned {
		if err := op.NewWorkspace().Plan(g, []op.Mode{op.Dense}); err != nil {
			t.Fatal(err)
		}
	}
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	for run := range 2 {
		if err := gorgonia.Let(x, dense(rankInput(rank, run, shape), shape...)); err != nil {
			t.Fatal(err)
		}
		vm.Reset()
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		sums := make([]float32, len(rankInput(0, run, shape)))
		var parts []*tensor.Dense
		for r := range size {
			in := rankInput(r, run, shape)
			parts = append(parts, dense(in, shape...))
			for i, v := range in {
				sums[i] += v
			}
		}
		name := fmt.Sprintf("rank %d of %d, %v along %d, planned %t, run %d: ", rank, size, shape, axis, planned, run)
		same := func(what string, got gorgonia.Value, wantShape []int, want []float32) {
			t.Helper()
			if !slices.Equal(got.Shape(), wantShape) {
				t.Errorf("%s%s has shape %v, want %v", name, what, got.Shape(), wantShape)
				return
			}
			tol.SameBits(t, name+what, got.Data().([]float32), want)
		}
		all := parts[0]
		if size > 1 {
			all = must(parts[0].Concat(axis, parts[1:]...))(t)
		}
		same("gather", gathered, all.Shape(), float32s(all))
		same("sum of sums", sum, shape, times(size, sums))
		same("forth and back", back, shape, times(size, rankInput(rank, run, shape)))
		if divides {
			n := shape[axis] / size
			slice := make([]tensor.Slice, dims)
			slice[axis] = gorgonia.S(rank*n, (rank+1)*n)
			if n == 1 { // a slice of one would drop the axis
				slice[axis] = gorgonia.S(rank*n, (rank+1)*n, 1)
			}
			view := must(dense(sums, shape...).Slice(slice...))(t).Materialize().(*tensor.Dense)
			want := append([]int{}, shape...)
			want[axis] = n
			same("scatter", part, want, view.Data().([]float32))
			same("gathered sums", whole, shape, sums)
		}
	}
}

// times adds values n times.
func times(n int, values []float32) []float32 {
	out := make([]float32, len(values))
	for range n {
		for i, v := range values {
			out[i] += v
		}
	}
	return out
}
