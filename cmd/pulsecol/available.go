package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"

	"github.com/pulsecol/pulsecol/models"
)

// checkMemory reports a run that needs more memory than the machine has available. A
// run that does not fit is killed by the system, or reads its weights from the disk
// in every step. sequences is the number of sequences that run at once, tokens their
// largest length. GPU memory is checked when a graph is compiled for a GPU.
func (f *modelFlag) checkMemory(mem models.Memory, sequences, tokens int) error {
	have := availableMemory(systemFiles)
	if f.IgnoreMemory || have == 0 {
		return nil
	}
	weights := mem.Weights
	if loaded := f.Model == nil || f.RandomWeights || !mapped; loaded || mem.GPU.Total() > 0 {
		weights = 0 // in memory already, or only read on their way to the GPU
	}
	threads := int64(runtime.GOMAXPROCS(0)) * (threadMemory + threadMemoryPerToken*int64(tokens))
	if need := weights + int64(sequences)*dataBytes(mem) + threads; need > have {
		return fmt.Errorf("the run needs about %s of memory, %s of them weights, and this machine has %s available (--ignore-memory runs it nevertheless)",
			byteSize(need), byteSize(weights), byteSize(have))
	}
	return nil
}

// systemFiles holds the system's files about memory.
var systemFiles = os.DirFS("/")

// availableMemory returns Linux's estimate of the bytes that a process can allocate without
// swapping, within the limits of its control groups. It is 0 where the system has no such
// estimate.
func availableMemory(system fs.FS) int64 {
	have := sizeField(system, "proc/meminfo", "MemAvailable:") << 10
	if have <= 0 {
		return 0
	}
	groups, err := fs.ReadFile(system, "proc/self/cgroup")
	if err != nil {
		return have
	}
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy, controllers, path
		if len(parts) != 3 {
			continue
		}
		root, limit, usage, cache := "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
		if parts[1] == "memory" { // version 1
			root, limit, usage, cache = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
		} else if parts[1] != "" {
			continue
		}
		// A group is also limited by its parents. In a container the path may be that of
		// the host, and the container's own group the root.
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			dir := path.Join(root, group)
			if most := sizeField(system, path.Join(dir, limit), ""); most > 0 {
				used := sizeField(system, path.Join(dir, usage), "") - sizeField(system, path.Join(dir, "memory.stat"), cache)
				have = min(have, max(1, most-used))
			}
			if group == "/" {
				break
			}
		}
	}
	return have
}

// sizeField returns the number after a name at the beginning of a line of a file, or
// 0 if there is none.
func sizeField(system fs.FS, name, field string) int64 {
	text, err := fs.ReadFile(system, name)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if field != "" && (len(words) == 0 || words[0] != field) {
			continue
		}
		if field != "" {
			words = words[1:]
		}
		if len(words) > 0 {
			n, _ := strconv.ParseInt(words[0], 10, 64) // "max" is no limit
			return n
		}
	}
	return 0
}
