//go:build !unix

package procgroup

import (
	"os"
	"os/exec"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

// signalAll does nothing: an interrupt reaches all processes of a console, and there are no other
// signals.
func signalAll([]*exec.Cmd, os.Signal) {}

// killAll ends processes, which may have ended.
func killAll(running []*exec.Cmd) {
	for _, cmd := range running {
		_ = cmd.Process.Kill()
	}
}
