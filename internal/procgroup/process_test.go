package procgroup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Variables of the processes that tests start.
const (
	modeVariable    = "PULSECOL_TEST_MODE"
	silenceVariable = "PULSECOL_TEST_SILENCE"
	timeoutVariable = "PULSECOL_TEST_TIMEOUT"
	versionVariable = "PULSECOL_TEST_VERSION"
	sizeVariable    = "PULSECOL_TEST_SIZE"
)

func TestMain(m *testing.M) {
	if mode, ok := os.LookupEnv(modeVariable); ok {
		if err := member(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// member is the program of the processes: it joins the group and does what its mode says.
func member(mode string) error {
	if mode == "local" { // the parent of members
		size, err := strconv.Atoi(os.Getenv(sizeVariable))
		if err != nil {
			return err
		}
		if err := os.Setenv(modeVariable, "work"); err != nil {
			return err
		}
		return (&Local{Size: size, Stdout: os.Stdout, Stderr: os.Stderr}).Run(context.Background())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, ok, err := FromEnv(os.LookupEnv)
	if err != nil || !ok {
		return fmt.Errorf("no place: %w", err)
	}
	silence, _ := time.ParseDuration(os.Getenv(silenceVariable)) // zero if there is none
	timeout, _ := time.ParseDuration(os.Getenv(timeoutVariable))
	g, err := Join(ctx, p, Options{
		Version: os.Getenv(versionVariable), Silence: silence, Timeout: timeout,
		Abort: func(err error) {
			fmt.Fprintln(os.Stderr, "aborted:", err)
			os.Exit(1)
		},
	})
	if err != nil {
		return err
	}
	return g.Close(work(g, mode))
}

func work(g *Group, mode string) error {
	sum := func() (float32, error) {
		values := make([]float32, 100_000)
		values[99_999] = float32(g.Rank() + 1)
		err := g.AllReduce("sum", values)
		return values[99_999], err
	}
	total, err := sum()
	if err != nil {
		return err
	}
	fmt.Printf("rank %d of %d, sum %v, id %x\n", g.Rank(), g.Size(), total, g.ID())
	switch mode {
	case "once":
		return nil
	case "idle":
		<-g.Context().Done()
		return nil
	case "deaf": // hangs in a call that no context ends
		select {}
	case "fail":
		if g.Rank() == 1 {
			return errors.New("out of memory")
		}
	case "exit":
		if g.Rank() == 1 {
			os.Exit(3)
		}
	}
	for {
		if _, err := sum(); err != nil {
			return err
		}
	}
}

// process is a started member.
type process struct {
	*exec.Cmd
	joined chan struct{} // closed when it has joined its group, or has ended
	out    string        // its line about the group, when it has joined
	err    bytes.Buffer  // complete when it has ended
	ended  chan error
}

// start starts a member with variables of the environment.
func start(t *testing.T, mode string, env ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0]), joined: make(chan struct{}), ended: make(chan error, 1)}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !fromLauncher(name) {
			p.Env = append(p.Env, v)
		}
	}
	p.Env = append(p.Env, append([]string{modeVariable + "=" + mode, silenceVariable + "=2s", timeoutVariable + "=20s"}, env...)...)
	p.Stderr = &p.err
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		p.out, _ = bufio.NewReader(out).ReadString('\n') // nothing if it cannot join
		close(p.joined)
		_, _ = io.Copy(io.Discard, out)
		p.ended <- p.Wait()
	}()
	t.Cleanup(func() { _ = p.Process.Kill() }) // it may have ended
	return p
}

// ends waits for a process, which has ten seconds.
func (p *process) ends(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(10 * time.Second):
		t.Errorf("process %d has not ended", p.Process.Pid)
		_ = p.Process.Kill()
		return <-p.ended
	}
}

// unusedPort returns a port of this host that nothing listens at.
func unusedPort(t testing.TB) string {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// torchEnv is the environment of a rank as torchrun sets it.
func torchEnv(rank, size int, port string) []string {
	return []string{
		fmt.Sprint("RANK=", rank), fmt.Sprint("LOCAL_RANK=", rank), fmt.Sprint("WORLD_SIZE=", size),
		"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,
	}
}

// slurmEnv is the environment of a rank as Slurm sets it, with an address of the script.
func slurmEnv(rank, size int, port string) []string {
	return []string{
		fmt.Sprint("SLURM_PROCID=", rank), fmt.Sprint("SLURM_LOCALID=", rank%2), fmt.Sprint("SLURM_NTASKS=", size),
		"SLURM_JOB_NODELIST=host[1-2]", "SLURM_JOB_ID=7", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,
	}
}

// startAll starts a group of the same mode and waits until all have joined it.
func startAll(t *testing.T, mode string, size int, env ...string) []*process {
	t.Helper()
	port := unusedPort(t)
	var all []*process
	for rank := range size {
		all = append(all, start(t, mode, append(torchEnv(rank, size, port), env...)...))
	}
	for rank, p := range all {
		<-p.joined
		if p.out == "" {
			t.Fatalf("rank %d: %v: %s", rank, p.ends(t), p.err.String())
		}
	}
	return all
}

// allFail waits for processes that end with an error whose text has all of want.
func allFail(t *testing.T, processes []*process, want ...string) {
	t.Helper()
	for _, p := range processes {
		err := p.ends(t)
		said := p.err.String()
		for _, text := range want {
			if err == nil || !strings.Contains(said, text) {
				t.Errorf("process %d: %v, said %q, want %q", p.Process.Pid, err, said, text)
			}
		}
	}
}

// endsWithParent says whether the system ends the processes of Local with it.
const endsWithParent = runtime.GOOS == "linux"
