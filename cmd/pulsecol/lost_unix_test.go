//go:build unix

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
)

// TestWeightsCutShort: one line that names the file, and status 1.
func TestWeightsCutShort(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.Dir(t, "llada"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.safetensors")
	const steps = 500
	cmd := exec.Command("pulsecol", "generate", "--json", "--watch", "--device", "cpu", "--model", dir,
		"--prompt-ids", "1,2,3", "--gen-length", strconv.Itoa(steps), "--steps", strconv.Itoa(steps))
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last, errors := "", 0
	for lines := bufio.NewScanner(said); lines.Scan(); last = lines.Text() {
		if last == "" { // the first step is done
			if err := os.Truncate(path, 4096); err != nil {
				t.Fatal(err)
			}
		}
		if strings.HasPrefix(lines.Text(), "pulsecol: ") {
			errors++
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitFailure {
		t.Errorf("%v, want exit status %d", err, exitFailure)
	}
	if want := ": checkpoint: " + path + " was cut short while in use: from "; !strings.Contains(last, want) || errors != 1 {
		t.Errorf("the last line is %q, of %d errors, want %s", last, errors, want)
	}
}
