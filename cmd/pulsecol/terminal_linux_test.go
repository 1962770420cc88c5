package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
	"golang.org/x/sys/unix"
)

// onTerminal runs the command on a terminal of its own and returns its standard output and
// error together.
func onTerminal(t *testing.T, env []string, args ...string) string {
	t.Helper()
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer main.Close()
	fd := int(main.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Skip(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 60}); err != nil {
		t.Skip(err)
	}
	end, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command("pulsecol", args...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm", "NO_COLOR="), env...)
	cmd.Stdout, cmd.Stderr = end, end
	err = cmd.Start()
	end.Close()
	if err != nil {
		t.Fatal(err)
	}
	all, _ := io.ReadAll(main) // ends with EIO when the command has closed its end
	_ = cmd.Wait()             // some of them fail
	return string(all)
}

func TestOnATerminal(t *testing.T) {
	watch := []string{"generate", "--model", golden.Dir(t, "llada"), "--prompt-ids", "1,2,3", "--gen-length", "8", "--watch"}
	const dim = "\x1b[2m"
	got := onTerminal(t, nil, watch...)
	if !strings.HasPrefix(got, takeTerminal) || strings.Count(got, leaveTerminal) != 1 || !strings.Contains(got, dim) {
		t.Errorf("--watch wrote %q", got)
	}
	if _, after, _ := strings.Cut(got, leaveTerminal); strings.Contains(after, "\x1b") || strings.Count(after, "\n") != 2 {
		t.Errorf("after it the terminal got %q, want the answer and a line", after)
	}
	if got := onTerminal(t, []string{"NO_COLOR=1"}, watch...); strings.Contains(got, dim) || !strings.Contains(got, takeTerminal) {
		t.Errorf("with NO_COLOR --watch wrote %q", got)
	}
	if got := onTerminal(t, []string{"TERM=dumb"}, watch...); strings.Contains(got, "\x1b") {
		t.Errorf("with TERM=dumb --watch wrote %q", got)
	}
	if got := onTerminal(t, nil, "generate", "--prompt-file", "\x1b[31mred"); strings.Contains(got, "\x1b") || !strings.Contains(got, "red") {
		t.Errorf("an error was %q", got)
	}
}
