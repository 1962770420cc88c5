//go:build unix && !linux

package procgroup

import "syscall"

// attributes starts a process in a process group of its own, so that Ctrl-C at a terminal reaches
// it once, from its parent.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
