package procgroup

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Local starts the processes of a group on this host, one for each GPU.
type Local struct {
	Size   int
	Args   []string  // program and arguments; default: those of this process
	Env    []string  // default: that of this process
	Stdin  io.Reader // of rank 0; the others have none
	Stdout io.Writer // of rank 0; what others write there is dropped
	Stderr io.Writer // of all; lines of others than rank 0 begin with their rank
}

// Times from an event to the end of processes that have not ended by themselves.
const (
	afterFailure = 3 * time.Second // of the first process
	afterSignal  = 8 * time.Second
)

// Run starts the processes and returns when all have ended. Rank and size are in the environment as
// torchrun sets them, and in CUDA_VISIBLE_DEVICES one device for each process: the first of the
// list that is there, or of all devices. Signals to this process go to all of them. If a process
// fails, the others are killed unless they end within seconds. The error is that of the process
// that was killed, or of the first to fail; after a signal or the end of ctx it is
// context.Canceled.
func (l *Local) Run(ctx context.Context) error {
	// The system ends the processes with the thread that has started them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	env, err := l.environments()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	ended := make(chan end)
	lines := &lineWriter{w: l.Stderr}
	var running []*exec.Cmd
	var first, worst error
	for rank := range l.Size {
		cmd := l.command(rank, env[rank], lines)
		if err := cmd.Start(); err != nil {
			first = fmt.Errorf("rank %d: %w", rank, err)
			break
		}
		running = append(running, cmd)
		go func() {
			err := cmd.Wait()
			ended <- end{rank, err, cmd.ProcessState.ExitCode() < 0}
		}()
	}
	kill := make(<-chan time.Time)
	if first != nil {
		kill = time.After(0)
	}
	killing, interrupted, done := false, false, ctx.Done()
	for left := len(running); left > 0; {
		select {
		case e := <-ended:
			left--
			if errors.Is(e.err, exec.ErrWaitDelay) { // a descendant keeps its output open
				e.err = nil
			}
			if e.err == nil || killing {
				continue
			}
			e.err = fmt.Errorf("rank %d: %w", e.rank, e.err)
			if first == nil {
				first = e.err
				kill = time.After(afterFailure)
			}
			if worst == nil && e.killed {
				worst = e.err
			}
		case s := <-signals:
			interrupted = true
			signalAll(running, s)
			kill = time.After(afterSignal)
		case <-done:
			interrupted, done = true, nil
			signalAll(running, os.Interrupt)
			kill = time.After(afterSignal)
		case <-kill:
			killing = true
			killAll(running)
		}
	}
	lines.flush()
	switch {
	case interrupted:
		return context.Canceled
	case worst != nil:
		return worst
	}
	return first
}

// end is that of a process.
type end struct {
	rank   int
	err    error
	killed bool // by a signal
}

// command returns the process of a rank.
func (l *Local) command(rank int, env []string, lines *lineWriter) *exec.Cmd {
	args := l.Args
	if args == nil {
		args = os.Args
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = env
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = attributes()
	if rank == 0 {
		cmd.Stdout, cmd.Stderr = l.Stdout, lines
		if file, ok := l.Stderr.(*os.File); ok { // which may be a terminal
			cmd.Stderr = file
		}
		if l.Stdin != nil { // not the file itself: a terminal stops the processes of other groups that read it
			cmd.Stdin = struct{ io.Reader }{l.Stdin}
		}
	} else {
		cmd.Stderr = &prefixed{lines: lines, prefix: fmt.Sprintf("rank %d: ", rank)}
	}
	return cmd
}

// environments returns the environment of each process.
func (l *Local) environments() ([][]string, error) {
	if l.Size < 1 || l.Size > MaxSize {
		return nil, fmt.Errorf("%d processes; want 1 to %d", l.Size, MaxSize)
	}
	base := l.Env
	if base == nil {
		base = os.Environ()
	}
	const visible = "CUDA_VISIBLE_DEVICES"
	devices := make([]string, l.Size)
	for i := range devices {
		devices[i] = strconv.Itoa(i)
	}
	var kept []string
	for _, v := range base {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case name == visible:
			if devices = strings.Split(value, ","); value == "" || len(devices) < l.Size {
				return nil, fmt.Errorf("%s is %q; want at least %d devices for %d processes", visible, value, l.Size, l.Size)
			}
		case !fromLauncher(name):
			kept = append(kept, v)
		}
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	token := rand.Text()
	var all [][]string
	for rank := range l.Size {
		all = append(all, append(slices.Clone(kept),
			fmt.Sprintf("%s=%d", torch.rank, rank), fmt.Sprintf("%s=%d", torch.localRank, rank), fmt.Sprintf("%s=%d", torch.size, l.Size),
			masterAddr+"=127.0.0.1", masterPort+"="+port, TokenVariable+"="+token, visible+"="+devices[rank]))
	}
	return all, nil
}

// freePort returns a port of this host at which nothing listens, below those that systems give to
// clients: one of these may be another's before rank 0 listens.
func freePort() (port string, err error) {
	for range 100 {
		port = strconv.Itoa(firstPort + mathrand.IntN(ports))
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			return port, l.Close()
		}
	}
	return "", err
}

// fromLauncher says whether a launcher of ranks sets a variable.
func fromLauncher(name string) bool {
	for _, c := range []convention{torch, openMPI, slurm} {
		if name == c.rank || name == c.localRank || name == c.size {
			return true
		}
	}
	return name == masterAddr || name == masterPort || name == TokenVariable || strings.HasPrefix(name, "TORCHELASTIC_")
}

// lineWriter writes whole lines of several processes.
type lineWriter struct {
	mu   sync.Mutex
	w    io.Writer
	open []*prefixed // with a line that has no end yet
}

// Write writes text as it is.
func (w *lineWriter) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.w == nil {
		return len(text), nil
	}
	return w.w.Write(text)
}

// prefixed writes the lines of one process.
type prefixed struct {
	lines  *lineWriter
	prefix string
	line   []byte
}

// maxLine bounds the memory for a line without an end.
const maxLine = 1 << 16

func (p *prefixed) Write(data []byte) (int, error) {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	if !slices.Contains(p.lines.open, p) {
		p.lines.open = append(p.lines.open, p)
	}
	p.line = append(p.line, data...)
	for {
		end := bytes.IndexByte(p.line, '\n') + 1
		if end == 0 && len(p.line) < maxLine {
			return len(data), nil
		}
		if end == 0 {
			end = len(p.line)
		}
		if err := p.print(p.line[:end]); err != nil {
			return 0, err
		}
		p.line = append(p.line[:0], p.line[end:]...)
	}
}

// print writes a line, which may have no end.
func (p *prefixed) print(line []byte) error {
	if p.lines.w == nil {
		return nil
	}
	_, err := fmt.Fprintf(p.lines.w, "%s%s\n", p.prefix, bytes.TrimSuffix(line, []byte("\n")))
	return err
}

// flush writes lines that have got no end.
func (w *lineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.open {
		if len(p.line) > 0 {
			_ = p.print(p.line) // the processes have ended
			p.line = nil
		}
	}
}
