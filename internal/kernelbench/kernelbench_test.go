package kernelbench_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernelbench"
)

func tiny() kernelbench.Options {
	return kernelbench.Options{
		Heads: 2, Lens: []int{64}, HeadDims: []int{8}, Groups: []int{32}, Sparsities: []int{75},
		Linears: [][3]int{{3, 4, 5}}, DTypes: []kernel.DType{kernel.BF16}, Precisions: []kernel.Precision{kernel.BFloat16, kernel.Float32}, Threads: []int{1, 2}, Samples: 1,
	}
}

func TestRun(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	var rows []kernelbench.Row
	err := kernelbench.Run(tiny(), func(r kernelbench.Row) error {
		rows = append(rows, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOMAXPROCS(0) != before {
		t.Errorf("GOMAXPROCS is %d, was %d", runtime.GOMAXPROCS(0), before)
	}
	var ops []string
	for i, r := range rows {
		ops = append(ops, r.Op)
		if want := []string{"bfloat16", "float32"}[i/2%2]; r.Precision != want {
			t.Errorf("row %d: precision %s, want %s", i, r.Precision, want)
		}
		if r.Level != kernel.Features() || r.MS <= 0 || r.GFLOPS <= 0 || r.PeakGFLOPS <= 0 || r.Percent <= 0 || r.Samples < 1 {
			t.Errorf("row %+v", r)
		}
		if !(0 < r.MSRange[0] && r.MSRange[0] <= r.MS && r.MS <= r.MSRange[1]) {
			t.Errorf("%s: a median of %v ms outside of its range %v", r.Op, r.MS, r.MSRange)
		}
		// The useful operations of one head of these sizes, by hand.
		flops := map[string]float64{"dense": 2 * 4 * 64 * 64 * 8, "refresh": 2 * 4 * 64 * 64 * 8,
			"columnsparse": 2 * 4 * 64 * 16 * 8, "linear": 2 * 3 * 4 * 5}[r.Op]
		if got := r.GFLOPS * r.MS * 1e6; got < 0.999*flops || got > 1.001*flops {
			t.Errorf("%s: %g operations, want %g", r.Op, got, flops)
		}
	}
	if got, want := strings.Join(ops, " "), strings.TrimSpace(strings.Repeat("dense ", 4)+strings.Repeat("refresh ", 4)+strings.Repeat("columnsparse ", 4)+strings.Repeat("linear ", 4)); got != want {
		t.Errorf("ops %q, want %q", got, want)
	}
}

func TestOutput(t *testing.T) {
	row := kernelbench.Row{Op: "columnsparse", Level: "avx2", DType: "F32", Precision: "bfloat16", Heads: 8, N: 4096, HeadDim: 64,
		Group: 32, Sparsity: 0.9, Threads: 2, Samples: 9, MS: 12.5, GFLOPS: 100, PeakGFLOPS: 200, Percent: 50}
	var table bytes.Buffer
	for range 2 {
		if err := kernelbench.Table(&table)(row); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"8x4096x64", "bfloat16", "90 %", "12.500", "50.0"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is not in %q", want, table.String())
		}
	}
	line, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	var back kernelbench.Row
	if err := json.Unmarshal(line, &back); err != nil || back != row {
		t.Errorf("%s decodes to %+v, %v", line, back, err)
	}
	for _, field := range []string{"op", "heads", "n", "head_dim", "group", "sparsity", "dtype", "precision", "threads", "ms", "ms_range", "gflops", "peak_gflops"} {
		if !strings.Contains(string(line), `"`+field+`":`) {
			t.Errorf("no field %s in %s", field, line)
		}
	}
}

func TestBadOptions(t *testing.T) {
	for want, change := range map[string]func(o *kernelbench.Options){
		`op "dens"`:                 func(o *kernelbench.Options) { o.Ops = []string{"dens"} },
		"threads is 0":              func(o *kernelbench.Options) { o.Threads = []int{0} },
		"group is -1":               func(o *kernelbench.Options) { o.Groups = []int{-1} },
		"precision is Precision(7)": func(o *kernelbench.Options) { o.Precisions = []kernel.Precision{7} },
		"sparsity is 100 %":         func(o *kernelbench.Options) { o.Sparsities = []int{100} },
		"linear 1x0x1":              func(o *kernelbench.Options) { o.Linears = [][3]int{{1, 0, 1}} },
		"stop as asked":             func(o *kernelbench.Options) {},
	} {
		o := tiny()
		change(&o)
		err := kernelbench.Run(o, func(kernelbench.Row) error { return errors.New("stop as asked") })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
