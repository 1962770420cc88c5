package attncase_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
)

var update = flag.Bool("update", false, "write cudaop/kernels/harness/cases.h")

// TestCHeader: the harness has the cases of the table.
func TestCHeader(t *testing.T) {
	const path = "../../cudaop/kernels/harness/cases.h"
	if *update {
		if err := os.WriteFile(path, []byte(attncase.CHeader()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != attncase.CHeader() {
		t.Errorf("%s is not that of the table; run go test ./internal/attncase -update", path)
	}
}

// TestCases: the table has what it promises.
func TestCases(t *testing.T) {
	names := map[string]bool{}
	has := func(what string, f func(c attncase.Case) bool) {
		t.Helper()
		if !slices.ContainsFunc(attncase.Cases, f) {
			t.Errorf("no case of %s", what)
		}
	}
	for _, c := range attncase.Cases {
		if names[c.Name] {
			t.Errorf("two cases %q", c.Name)
		}
		names[c.Name] = true
		if err := c.Validate(); err != nil || c.Group < 1 {
			t.Errorf("%v: %v", c, err)
		}
	}
	for _, tile := range []int{32, 128} {
		for n := tile - 1; n <= tile+1; n++ {
			has("a length at the edge of a tile", func(c attncase.Case) bool { return c.Len == n })
		}
	}
	has("one token", func(c attncase.Case) bool { return c.Len == 1 })
	has("seven query heads for a key head", func(c attncase.Case) bool { return c.Heads == 7*c.KVHeads })
	has("a group larger than n", func(c attncase.Case) bool { return c.Group > c.Len })
	has("every key", func(c attncase.Case) bool { return c.Sparsity == 0 })
	has("one key", func(c attncase.Case) bool { return (1-c.Sparsity)*float64(c.Len) < 1 && c.Len > 1 })
	has("padding in a row without a key", func(c attncase.Case) bool { return !c.LeftOnly() })
	has("a group of padding alone", func(c attncase.Case) bool {
		return c.Padding != nil && c.LeftOnly() && c.Padding(0, min(c.Group, c.Len)-1, c.Len)
	})
	for _, s := range attncase.Specials {
		s.Set(attncase.Operands(rand.New(rand.NewPCG(1, 1)), attncase.SpecialShape, 1)) // does not panic
	}
	for name, table := range attncase.Cases[2].Tables(rand.New(rand.NewPCG(1, 1))) {
		if table.Group != attncase.Cases[2].Group || len(table.Bits)%kernel.Words(attncase.Cases[2].Len) != 0 {
			t.Errorf("table %s: %+v", name, table)
		}
	}
}
