package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// deadline is when a command hangs, on a slow machine too.
const deadline = 60 * time.Second

// Exit statuses that the command documents.
const (
	success     = 0
	failure     = 1
	wrongUsage  = 2
	interrupted = 130
)

// addressSpace is the memory that a command may map, in KiB.
const addressSpace = 8 << 20

// mostMemory is what a command on the small models may have in memory: the longest
// input that any of them takes, several times over.
const mostMemory = 2 << 30

// command is a run of the command. The zero values are those of exec.Cmd.
type command struct {
	args   []string
	dir    string
	env    []string // in addition
	stdin  io.Reader
	stdout *os.File // nil: it is kept
	stderr *os.File // nil: it is kept
	ulimit string   // more limits, as the shell sets them
	note   string   // of failures: what else repeats it

	session bool // stdin is the terminal of a session of its own
}

func pulsecol(args ...string) command { return command{args: args} }

func (c command) String() string {
	text := fmt.Sprintf("pulsecol %q", c.args)
	if c.note != "" {
		text += " (" + c.note + ")"
	}
	return text
}

// result is what a command came to.
type result struct {
	status         int            // -1 after a signal
	signal         syscall.Signal // that ended it
	stdout, stderr string
}

// process is a command that was started.
type process struct {
	*exec.Cmd
	command
	stop     context.CancelFunc
	ctx      context.Context
	out, err bytes.Buffer
}

// start starts a command under limits of memory and time.
func (c command) start(t *testing.T) *process {
	t.Helper()
	must(t, seeSources())
	p := &process{command: c}
	p.ctx, p.stop = context.WithTimeout(context.Background(), deadline)
	limits := fmt.Sprintf("ulimit -v %d; %s", addressSpace, c.ulimit)
	p.Cmd = exec.CommandContext(p.ctx, "sh", append([]string{"-c", limits + "\n" + `exec "$0" "$@"`, program}, c.args...)...)
	p.Cmd.Dir, p.Cmd.Stdin, p.Cmd.Stderr = c.dir, c.stdin, &p.err
	p.Cmd.Env = append(os.Environ(), c.env...)
	if p.Cmd.Stdout = &p.out; c.stdout != nil {
		p.Cmd.Stdout = c.stdout
	}
	if c.stderr != nil {
		p.Cmd.Stderr = c.stderr
	}
	if c.session {
		p.Cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	p.Cmd.WaitDelay = time.Second                                            // of a reader of stdin that never ends
	p.Cmd.Cancel = func() error { return p.Process.Signal(syscall.SIGQUIT) } // it shows where it hangs
	if err := p.Cmd.Start(); err != nil {
		p.stop()
		t.Fatalf("%s: %v", c, err)
	}
	return p
}

// wait waits for the end of a command, and reports what no run of it may do: hang,
// show a stack, or take too much memory.
func (p *process) wait(t *testing.T) result {
	t.Helper()
	defer p.stop()
	err := p.Cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("%s: %v", p.command, err)
	}
	r := result{status: p.ProcessState.ExitCode(), stdout: p.out.String(), stderr: p.err.String()}
	if s := p.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		r.signal = s.Signal()
	}
	if p.ctx.Err() != nil {
		t.Errorf("%s: runs for more than %v:\n%.20000s", p.command, deadline, r.stderr)
		return r
	}
	usage := p.ProcessState.SysUsage().(*syscall.Rusage)
	memory := usage.Maxrss << 10
	if trials.sawMemory(memory); memory > mostMemory {
		t.Errorf("%s: took %d MiB", p.command, memory>>20)
	}
	for _, trace := range []string{"goroutine ", "panic:", "fatal error:", "SIGSEGV", "SIGBUS", "internal error"} {
		if strings.Contains(r.stderr, trace) {
			t.Errorf("%s: printed a stack or an error of the program itself:\n%s", p.command, shortened(r.stderr))
			break
		}
	}
	return r
}

// run runs a command to its end. A failing one must say why, in one line.
func (c command) run(t *testing.T) result {
	t.Helper()
	r := c.start(t).wait(t)
	if r.status == failure || r.status == wrongUsage {
		c.oneLine(t, r)
	}
	return r
}

// oneLine wants exactly one line that begins as errors do, the last one.
func (c command) oneLine(t *testing.T, r result) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
	errors := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.HasPrefix(l, "pulsecol: ") })
	if len(errors) != 1 || !strings.HasPrefix(lines[len(lines)-1], "pulsecol: ") {
		t.Errorf("%s: status %d, and on the standard error %q, want one line with the reason", c, r.status, shortened(r.stderr))
	}
}

// fails runs a command that cannot succeed, and wants one line with every one of
// words.
func (c command) fails(t *testing.T, words ...string) {
	t.Helper()
	r := c.run(t)
	if r.status != failure && r.status != wrongUsage {
		t.Errorf("%s: status %d, signal %v, want %d or %d: %s", c, r.status, r.signal, failure, wrongUsage, shortened(r.stderr))
	}
	for _, word := range words {
		if !strings.Contains(r.stderr, word) {
			t.Errorf("%s: %q does not name %q", c, shortened(r.stderr), word)
		}
	}
}

// succeeds runs a command and returns its standard output.
func (c command) succeeds(t *testing.T) string {
	t.Helper()
	r := c.run(t)
	if r.status != success {
		t.Fatalf("%s: status %d, signal %v: %s", c, r.status, r.signal, shortened(r.stderr))
	}
	return r.stdout
}

func shortened(text string) string {
	const most = 1000
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

// runs reports whether a process has not ended.
func (p *process) runs() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && p.ctx.Err() == nil && !strings.HasPrefix(state, "Z")
}
