package checkpoint

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/models"
)

// TestNormals: mean, standard deviation and tails are those of a normal
// distribution, within four standard errors and a bfloat16's rounding.
func TestNormals(t *testing.T) {
	const n, std = 1<<20 + 3, 0.02
	data := normals(n, std, 7)
	if len(data) != 2*n {
		t.Fatalf("%d bytes, want %d", len(data), 2*n)
	}
	values := make([]float32, n)
	bf16.Decode(values, data)
	var sum, squares float64
	beyond2 := 0
	for _, v := range values {
		x := float64(v) / std
		sum += x
		squares += x * x
		if math.Abs(x) > 2 {
			beyond2++
		}
	}
	const rounding = 1.0 / 256
	if mean := sum / n; math.Abs(mean) > 4/math.Sqrt(n) {
		t.Errorf("mean %v standard deviations, want 0", mean)
	}
	if got := squares / n; math.Abs(got-1) > 4*math.Sqrt(2.0/n)+rounding {
		t.Errorf("variance %v, want 1", got)
	}
	const tail = 0.0455
	if got := float64(beyond2) / n; math.Abs(got-tail) > 4*math.Sqrt(tail/n)+tail*3*rounding {
		t.Errorf("%v of the values are beyond two standard deviations, want %v", got, tail)
	}
}

// TestNormalsThreads: equal seeds give equal weights on any number of threads.
func TestNormalsThreads(t *testing.T) {
	const n = 3<<20 + 1
	many := normals(n, initStd, 1)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if !bytes.Equal(normals(n, initStd, 1), many) {
		t.Error("one thread gives other weights")
	}
	if bytes.Equal(normals(n, initStd, 2), many) {
		t.Error("another seed gives the same weights")
	}
}

// TestRandomTensorsBeginApart: tensors have different addresses, because caches of weights
// identify them by address.
func TestRandomTensorsBeginApart(t *testing.T) {
	var r randomWeights
	if err := r.fill(100); err != nil {
		t.Fatal(err)
	}
	first := map[*byte]bool{}
	for range 10_000 {
		data := r.tensor("w", []int{4, 25}).Data
		if len(data) != 200 {
			t.Fatalf("%d bytes, want 200", len(data))
		}
		first[&data[0]] = true
	}
	if len(first) != 10_000 {
		t.Errorf("10000 tensors begin at %d places", len(first))
	}
}

func TestRandomFilesTooLarge(t *testing.T) {
	if err := new(randomWeights).fill(math.MaxInt64 / 2); !errors.Is(err, models.ErrConfig) {
		t.Errorf("error %v", err)
	}
}
