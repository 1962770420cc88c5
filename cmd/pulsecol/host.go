package main

import (
	"os"
	"runtime"
	"strings"

	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/kernel"
)

// host describes the machine.
type host struct {
	CPU      string `json:"cpu"`      // the processor's name where the system tells, else its architecture
	Threads  int    `json:"threads"`  // in use
	Features string `json:"features"` // instruction set of the kernels
	CUDA     string `json:"cuda"`     // "available", or why not
}

func thisHost() host {
	h := host{CPU: runtime.GOARCH, Threads: runtime.GOMAXPROCS(0), Features: kernel.Features(), CUDA: "available"}
	if err := cudaop.Available(); err != nil {
		h.CUDA = err.Error()
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return h
	}
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			h.CPU = strings.TrimSpace(value)
			break
		}
	}
	return h
}
