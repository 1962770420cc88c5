//go:build (!amd64 && !arm64) || noasm

package kernel

func isas() []*isa { return []*isa{&portable} }
