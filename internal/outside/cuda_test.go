//go:build cuda

package outside_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain skips the tests: their graphs are on the CPU and use gorgonia.Read, on
// which Gorgonia's cuda build ends the program (see op.Check). Package cudaop holds
// the operators of both devices together.
func TestMain(*testing.M) {
	fmt.Println("tests of CPU graphs run without -tags cuda")
	os.Exit(0)
}
