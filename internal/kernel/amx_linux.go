//go:build amd64 && !noasm

package kernel

import "golang.org/x/sys/unix"

// tilesAllowed requests Linux's permission to use tiles in the threads of this process, and
// reports whether it is granted. From then on Linux requires alternative signal stacks large
// enough for tiles, as Go's are; it refuses if a thread has a smaller one.
func tilesAllowed() bool {
	const requestPermission, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
	_, _, failed := unix.Syscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return failed == 0
}
