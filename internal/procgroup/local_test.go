//go:build unix

package procgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// shell returns a group of processes that run a script, without a group's environment.
func shell(size int, script string, env ...string) (l *Local, out, said *bytes.Buffer) {
	out, said = new(bytes.Buffer), new(bytes.Buffer)
	return &Local{Size: size, Args: []string{"sh", "-c", script}, Env: append([]string{"PATH=" + os.Getenv("PATH")}, env...), Stdout: out, Stderr: said}, out, said
}

// TestLocalEnvironment: each process has its rank and a device of its own, and nothing of other
// launchers.
func TestLocalEnvironment(t *testing.T) {
	const script = `[ $RANK = 0 ] && cat; echo rank $RANK of $WORLD_SIZE, local $LOCAL_RANK, device $CUDA_VISIBLE_DEVICES, $MASTER_ADDR, "${SLURM_PROCID-none}" "${TORCHELASTIC_RUN_ID-none}" ${#PULSECOL_JOB_TOKEN} >&2; echo out $RANK`
	l, out, said := shell(3, script, "SLURM_PROCID=0", "TORCHELASTIC_RUN_ID=x", "CUDA_VISIBLE_DEVICES=5,GPU-7,2,9", "RANK=9")
	l.Stdin = strings.NewReader("in\n")
	if err := l.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out.String() != "in\nout 0\n" {
		t.Errorf("output %q, want that of rank 0", out)
	}
	for rank, device := range []string{"5", "GPU-7", "2"} {
		prefix := ""
		if rank > 0 {
			prefix = fmt.Sprintf("rank %d: ", rank)
		}
		want := fmt.Sprintf("%srank %d of 3, local %d, device %s, 127.0.0.1, none none 26\n", prefix, rank, rank, device)
		if !strings.Contains("\n"+said.String(), "\n"+want) {
			t.Errorf("no %q in %q", want, said)
		}
	}
	for list, want := range map[string]string{"5,7": `CUDA_VISIBLE_DEVICES is "5,7"; want at least 3 devices`, "": `CUDA_VISIBLE_DEVICES is ""`} {
		l, _, _ := shell(3, "true", "CUDA_VISIBLE_DEVICES="+list)
		if err := l.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("devices %q: %v", list, err)
		}
	}
}

// TestLocalLines: lines of the processes are whole, one without an end too.
func TestLocalLines(t *testing.T) {
	l, _, said := shell(4, `[ $RANK = 0 ] || { for i in 1 2 3 4 5 6 7 8 9; do printf 'a%s' $RANK >&2; printf 'b\n' >&2; done; printf end >&2; }`)
	if err := l.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(said.String()) {
		count[line]++
	}
	for rank := 1; rank < 4; rank++ {
		if a, b := count[fmt.Sprintf("rank %d: a%db\n", rank, rank)], count[fmt.Sprintf("rank %d: end\n", rank)]; a != 9 || b != 1 {
			t.Errorf("rank %d: %d and %d lines of %q", rank, a, b, said)
		}
	}
}

// TestLocalEnds: the error is that of the process that fails, and the others end, whatever they do.
func TestLocalEnds(t *testing.T) {
	for script, want := range map[string]string{
		`[ $RANK = 2 ] && exit 7; trap "" TERM INT; while :; do sleep 1; done`:           "rank 2: exit status 7",
		`[ $RANK = 1 ] && kill -9 $$; sleep 0.2; exit 1`:                                 "rank 1: signal: killed",
		`[ $RANK = 1 ] && kill -STOP $$; [ $RANK = 0 ] && sleep 0.5 && exit 4; sleep 60`: "rank 0: exit status 4",
		`exit 0`: "",
	} {
		l, _, _ := shell(3, script)
		err := l.Run(t.Context())
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
	missing := Local{Size: 2, Args: []string{"/nonexistent/program"}}
	if err := missing.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "rank 0: ") {
		t.Errorf("no program: %v", err)
	}
}

// TestLocalCanceled: the end of the context interrupts all processes.
func TestLocalCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, _, said := shell(3, `trap 'echo interrupted >&2; exit 1' INT; echo up >&2; while :; do sleep 0.05; done`)
	var up sync.WaitGroup
	up.Add(3)
	l.Stderr = writerFunc(func(data []byte) (int, error) {
		for range bytes.Count(data, []byte("up\n")) {
			up.Done()
		}
		return said.Write(data)
	})
	go func() {
		up.Wait()
		cancel()
	}()
	if err := l.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := strings.Count(said.String(), "interrupted\n"); n != 3 {
		t.Errorf("%d of 3 processes were interrupted: %q", n, said)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(data []byte) (int, error) { return f(data) }

// TestLocalGroup: a real group under a real parent. A rank that is killed or stopped, or a signal to
// the parent or its death, ends all.
func TestLocalGroup(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	for _, c := range []struct {
		name string
		do   func(parent *os.Process, ranks []int) error
		want string
	}{
		{"killed", func(_ *os.Process, ranks []int) error { return syscall.Kill(ranks[2], syscall.SIGKILL) }, "rank 2: signal: killed"},
		{"stopped", func(_ *os.Process, ranks []int) error { return syscall.Kill(ranks[1], syscall.SIGSTOP) }, "has given no sign of life"},
		{"interrupted", func(p *os.Process, _ []int) error { return p.Signal(os.Interrupt) }, "canceled"},
		{"terminated", func(p *os.Process, _ []int) error { return p.Signal(syscall.SIGTERM) }, "canceled"},
		{"orphaned", func(p *os.Process, _ []int) error { return p.Kill() }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "orphaned" && !endsWithParent {
				t.Skip("only on Linux")
			}
			parent := start(t, "local", sizeVariable+"=4")
			<-parent.joined
			ranks := childrenOf(t, parent.Process.Pid, 4)
			if err := c.do(parent.Process, ranks); err != nil {
				t.Fatal(err)
			}
			if err := parent.ends(t); err == nil || !strings.Contains(parent.err.String(), c.want) {
				t.Errorf("%v: %s", err, parent.err.String())
			}
			for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				left := 0
				for _, pid := range ranks {
					if running(pid) {
						left++
					}
				}
				if left == 0 {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d processes have not ended: %s", left, parent.err.String())
				}
			}
		})
	}
}

// running says whether a process is there and no zombie.
func running(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}

// childrenOf returns the processes that a process has started, in the order of ranks.
func childrenOf(t *testing.T, parent, n int) []int {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		t.Skipf("ps: %v", err)
	}
	var found []int
	for line := range strings.Lines(string(out)) {
		var pid, of int
		if _, err := fmt.Sscan(line, &pid, &of); err == nil && of == parent {
			found = append(found, pid)
		}
	}
	if len(found) != n {
		t.Fatalf("%d processes, want %d", len(found), n)
	}
	return found
}
