package kernel

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestAVX2Registers searches the AVX2 routines for registers and masks that only AVX-512
// has. The generator does not report them, and a machine with AVX-512 runs the result.
func TestAVX2Registers(t *testing.T) {
	source, err := os.ReadFile("kernels_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	beyond := regexp.MustCompile(`\b([XY](1[6-9]|2\d|3[01])|Z\d+|K\d)\b`)
	functions := 0
	for _, text := range strings.Split(string(source), "\nTEXT ·")[1:] {
		name, _, _ := strings.Cut(text, "(")
		if !strings.HasSuffix(name, "AVX2") {
			continue
		}
		functions++
		body, _, _ := strings.Cut(text, "\n//")
		if found := beyond.FindString(body); found != "" {
			t.Errorf("%s uses %s", name, found)
		}
	}
	if functions < 8 {
		t.Errorf("found %d AVX2 functions, want at least 8", functions)
	}
}
