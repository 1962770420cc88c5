//go:build unix

package procgroup

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestProcesses: processes of two conventions, which start in any order, share an id and a sum.
func TestProcesses(t *testing.T) {
	for _, size := range []int{1, 2, 5} {
		port := unusedPort(t)
		var all []*process
		for i, rank := range rand.Perm(size) {
			env := torchEnv(rank, size, port)
			if rank%2 == 1 {
				env = slurmEnv(rank, size, port)
			}
			if i == size-1 && size == 5 {
				time.Sleep(500 * time.Millisecond) // a late one
			}
			all = append(all, start(t, "once", append(env, TokenVariable+"=secret")...))
		}
		var said []string
		for _, p := range all {
			<-p.joined
			if err := p.ends(t); err != nil {
				t.Errorf("%v: %s", err, p.err.String())
			}
			said = append(said, p.out)
		}
		slices.Sort(said)
		_, id, _ := strings.Cut(strings.TrimSpace(said[0]), "id ")
		if len(id) != 256 || strings.Trim(id, "0") == "" {
			t.Errorf("id %q", id)
		}
		for rank, line := range said {
			if want := fmt.Sprintf("rank %d of %d, sum %d, id %s\n", rank, size, size*(size+1)/2, id); line != want {
				t.Errorf("rank %d says %q, want %q", rank, line, want)
			}
		}
	}
}

// kills is how often TestKilled kills a rank, at a time of its own: PULSECOL_GROUP_KILLS.
func kills(t *testing.T) int {
	n := 3
	if text, ok := os.LookupEnv("PULSECOL_GROUP_KILLS"); ok {
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatalf("PULSECOL_GROUP_KILLS=%s: %v", text, err)
		}
	}
	return n
}

// TestKilled: when a rank is killed, all others end with an error that names it, whether they are
// in collectives, wait for the group's end, or hang in a call.
func TestKilled(t *testing.T) {
	const size = 4
	for i := range kills(t) {
		victim := i % size
		wait := time.Duration(rand.Int64N(int64(300 * time.Millisecond)))
		all := startAll(t, []string{"work", "idle", "deaf"}[i%3], size)
		time.Sleep(wait)
		if err := all[victim].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("rank %d (process %d on ", victim, all[victim].Process.Pid)
		allFail(t, slices.Delete(all, victim, victim+1), want, "it was killed, or it crashed")
	}
}

// TestKilledBeforeAllCame: a rank that is killed while others have not come ends the group.
func TestKilledBeforeAllCame(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for time-outs")
	}
	port := unusedPort(t)
	root := start(t, "work", torchEnv(0, 3, port)...)
	one := start(t, "work", torchEnv(1, 3, port)...)
	time.Sleep(500 * time.Millisecond) // mostly enough to come; killed earlier, rank 1 is missing
	if err := one.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	two := start(t, "work", append(torchEnv(2, 3, port), timeoutVariable+"=3s")...)
	_ = root.ends(t) // only fails
	if said := root.err.String(); !strings.Contains(said, "rank 1") {
		t.Errorf("rank 0 said %q", said)
	}
	if err := two.ends(t); err == nil {
		t.Error("rank 2 has not failed")
	}
}

// TestStopped: a rank that hangs ends the others, and ends itself when it runs again.
func TestStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for time-outs")
	}
	for _, victim := range []int{0, 1} {
		all := startAll(t, "work", 3)
		if err := all[victim].Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		stopped := all[victim]
		want := fmt.Sprintf("rank %d (process %d on ", victim, stopped.Process.Pid)
		allFail(t, slices.Delete(all, victim, victim+1), want, "has given no sign of life for 2s")
		if err := stopped.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		allFail(t, []*process{stopped}, fmt.Sprintf("this process, rank %d, was stopped for ", victim))
	}
}

// TestOneEnds: a rank that fails, exits or is interrupted ends the others.
func TestOneEnds(t *testing.T) {
	all := startAll(t, "fail", 3)
	allFail(t, all[1:2], "out of memory")
	allFail(t, []*process{all[0], all[2]}, "rank 1 failed: out of memory")

	all = startAll(t, "exit", 3)
	_ = all[1].ends(t) // by its mode
	allFail(t, []*process{all[0], all[2]}, "rank 1 (process", "has ended without a word")

	for _, victim := range []int{0, 2} {
		all = startAll(t, "work", 3)
		if err := all[victim].Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		allFail(t, all[victim:victim+1], "context canceled")
		allFail(t, slices.Delete(all, victim, victim+1), fmt.Sprintf("rank %d failed: interrupted", victim))
	}
}

// TestDoNotFit: processes that cannot form a group all say why.
func TestDoNotFit(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for time-outs")
	}
	short := timeoutVariable + "=2s"
	for _, c := range []struct {
		name string
		envs func(port string) [][]string
		want string
	}{
		{"size", func(port string) [][]string { return [][]string{torchEnv(0, 3, port), torchEnv(1, 2, port)} },
			") is in a group of 2, rank 0 (process "},
		{"twice", func(port string) [][]string {
			return [][]string{torchEnv(0, 4, port), torchEnv(1, 4, port), torchEnv(1, 4, port)}
		},
			"two processes say that they are rank 1: process "},
		{"version", func(port string) [][]string {
			return [][]string{append(torchEnv(0, 2, port), versionVariable+"=v1"), append(torchEnv(1, 2, port), versionVariable+"=v2")}
		}, ") runs pulsecol v2, rank 0 (process "},
		{"missing", func(port string) [][]string {
			return [][]string{append(torchEnv(0, 4, port), short), torchEnv(2, 4, port)}
		},
			"ranks 1, 3 of 4 did not come to 127.0.0.1:"},
		{"no rank 0", func(port string) [][]string { return [][]string{append(torchEnv(1, 2, port), short)} },
			"rank 0 did not answer at 127.0.0.1:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := unusedPort(t)
			var all []*process
			for _, env := range c.envs(port) {
				all = append(all, start(t, "work", env...))
			}
			allFail(t, all, c.want)
		})
	}
}

// TestToken: a process with another token is refused, and the group waits for the right one.
func TestToken(t *testing.T) {
	port := unusedPort(t)
	secret := TokenVariable + "=secret"
	root := start(t, "once", append(torchEnv(0, 2, port), secret)...)
	allFail(t, []*process{start(t, "once", append(torchEnv(1, 2, port), TokenVariable+"=another")...)}, "refused rank 1: another "+TokenVariable)
	for _, p := range []*process{start(t, "once", append(torchEnv(1, 2, port), secret)...), root} {
		if err := p.ends(t); err != nil {
			t.Errorf("%v: %s", err, p.err.String())
		}
	}
}

// TestPortInUse: rank 0 says so, and others that the listener is no rank 0.
func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			conn.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	allFail(t, []*process{start(t, "work", torchEnv(0, 2, port)...)}, "rank 0 cannot listen for the others", "MASTER_PORT names another port")
	allFail(t, []*process{start(t, "work", torchEnv(1, 2, port)...)}, "rank 0 at 127.0.0.1:"+port+": is no rank 0 of a group")
}

// TestComplete: a process that comes too late is refused.
func TestComplete(t *testing.T) {
	port := unusedPort(t)
	all := []*process{start(t, "work", torchEnv(0, 2, port)...), start(t, "work", torchEnv(1, 2, port)...)}
	<-all[0].joined
	allFail(t, []*process{start(t, "work", torchEnv(1, 2, port)...)}, "the group of 2 is complete")
	if err := all[0].Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	allFail(t, all, "")
}
