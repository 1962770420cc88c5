//go:build unix

package procgroup

import (
	"os"
	"os/exec"
	"syscall"
)

// signalAll sends a signal to processes that may have ended.
func signalAll(running []*exec.Cmd, s os.Signal) {
	for _, cmd := range running {
		_ = cmd.Process.Signal(s)
	}
}

// killAll ends processes and what they have started.
func killAll(running []*exec.Cmd) {
	for _, cmd := range running {
		if cmd.Process.Signal(syscall.Signal(0)) == nil { // it has not been waited for: its number is its own
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	}
}
