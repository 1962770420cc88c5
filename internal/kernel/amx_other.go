//go:build amd64 && !noasm && !linux

package kernel

// tilesAllowed is false: tiles are used on Linux only.
func tilesAllowed() bool { return false }
