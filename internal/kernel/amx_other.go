//go:build amd64 && !noasm && !linux

package kernel

// tilesAllowed: other systems are not asked.
func tilesAllowed() bool { return false }
