//go:build unix

package kernel_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/mapped"
)

// TestFaults: if a mapped file of weights is truncated, the call panics in the caller's
// goroutine with a value that mapped.Fault recognises, in the assembly of every instruction
// set and on every goroutine. The team can be used afterwards.
func TestFaults(t *testing.T) {
	const features, rows = 256, 40
	r := attncase.Rand(5)
	x := attncase.Normal(r, rows*features, 1)
	values := attncase.Normal(r, features*features, 1)
	ids := []int32{0, 7, 200, 255}
	kernel.ForEachISA(t, func(t *testing.T) {
		for _, dtype := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16} {
			for _, precision := range []kernel.Precision{kernel.Float32, kernel.BFloat16, kernel.Int16} {
				memory := newMatrix(t, features, features, dtype, values)
				memory.Precision = precision
				path := filepath.Join(t.TempDir(), "weights")
				if err := os.WriteFile(path, memory.Data, 0o600); err != nil {
					t.Fatal(err)
				}
				file, err := mapped.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				w := memory
				w.Data = file.Data
				team := &kernel.Team{Workers: 4}
				want, got := make([]float32, rows*features), make([]float32, rows*features)
				team.Linear(want, x, rows, &memory, nil)
				team.Linear(got, x, rows, &w, nil)
				if !slices.Equal(got, want) {
					t.Fatalf("%v, %v: mapped weights give other results", dtype, precision)
				}
				if err := os.Truncate(path, 4096); err != nil {
					t.Fatal(err)
				}
				for name, call := range map[string]func(){
					"Linear":  func() { team.Linear(got, x, rows, &w, nil) },
					"Linears": func() { team.Linears(got, x, nil, rows, []kernel.Projection{{Weight: w}}) },
					"Embed":   func() { team.Embed(got[:len(ids)*features], ids, &w) },
				} {
					err := fault(call)
					if !errors.Is(err, mapped.ErrLost) || !strings.HasPrefix(err.Error(), path+" was cut short") {
						t.Errorf("%v, %v: %s: error %v", dtype, precision, name, err)
					}
				}
				team.Linear(got, x, rows, &memory, nil)
				if !slices.Equal(got, want) {
					t.Errorf("%v, %v: other results after a fault", dtype, precision)
				}
				// An emulator does not report the address, which identifies one of several files.
				if err := file.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// fault returns the error of the fault in f.
func fault(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if err = mapped.Fault(r); err == nil {
				panic(r)
			}
		}
	}()
	f()
	return nil
}
