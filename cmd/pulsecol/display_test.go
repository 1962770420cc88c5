package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 4, []string{""}},
		{"abcd", 4, []string{"abcd"}},
		{"abcde", 4, []string{"abcd", "e"}},
		{"ab\n\ncd", 4, []string{"ab", "", "cd"}},
		{"日本語", 4, []string{"日本", "語"}},
		{"ab日", 3, []string{"ab", "日"}},
		{"░░░░░", 4, []string{"░░░░", "░"}},
	} {
		if diff := cmp.Diff(c.want, wrap(c.text, c.width)); diff != "" {
			t.Errorf("wrap(%q, %d): %s", c.text, c.width, diff)
		}
	}
}

func TestPrintableHidesControlCharacters(t *testing.T) {
	if got := printable("a\x1b[2Jb\r\u009bc"); strings.ContainsAny(got, "\x1b\r\u009b") || !strings.Contains(got, "a") {
		t.Errorf("printable gives %q", got)
	}
}

func TestSecondsAndByteSize(t *testing.T) {
	for s, want := range map[float64]string{0: "0 ms", 0.0412: "41 ms", 4.13: "4.1 s", 41.3: "41 s", 125: "2 min 05 s"} {
		if got := seconds(s); got != want {
			t.Errorf("seconds(%v) = %q, want %q", s, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 16031162368: "14.9 GiB"} {
		if got := byteSize(n); got != want {
			t.Errorf("byteSize(%d) = %q, want %q", n, got, want)
		}
	}
}
