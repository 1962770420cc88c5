package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/pulsecol/pulsecol/models"
)

// limitGarbage is called between opening a model and a run that will hold data bytes. It
// returns the garbage of opening the model to the system, and limits garbage to a twentieth
// of the live memory, which is the result in bytes. Go's default, as much garbage as live
// memory, would double the peak.
func limitGarbage(data int64) int64 {
	const least = 2 << 20 // with less, small models would collect garbage in every step
	debug.FreeOSMemory()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	live := data + int64(s.HeapAlloc)
	garbage := max(least, live/20)
	debug.SetGCPercent(int(min(100, 100*garbage/live)))
	return garbage
}

// dataBytes is what a generation holds in the host's memory, without weights.
func dataBytes(m models.Memory) int64 { return m.Workspace + m.Columns + m.Cache }

// memoryPrediction is the memory of a run, in bytes.
type memoryPrediction struct {
	Batch     int    `json:"batch"`
	Length    int    `json:"length"`
	NewTokens int    `json:"new_tokens"`
	Method    string `json:"method"`
	Weights   int64  `json:"weights_bytes"` // that a run reads
	Workspace int64  `json:"workspace_bytes"`
	Columns   int64  `json:"columns_bytes"`
	Cache     int64  `json:"cache_bytes,omitempty"` // keys and values, and the columns of a block
	Program   int64  `json:"program_bytes"`         // all the rest
	Peak      int64  `json:"peak_bytes"`

	// Of random weights, which share memory, instead of a checkpoint's.
	RandomWeights int64 `json:"random_weights_bytes,omitempty"`
	RandomPeak    int64 `json:"random_peak_bytes,omitempty"`

	GPU *gpuMemory `json:"gpu,omitempty"` // of a run on a GPU; the rest is then the host's memory
}

// gpuMemory is the memory of a run on a GPU, in bytes.
type gpuMemory struct {
	Weights     int64 `json:"weights_bytes"`
	Columns     int64 `json:"columns_bytes"`
	Scores      int64 `json:"scores_bytes"`
	Activations int64 `json:"activations_bytes"`
	Machine     int64 `json:"machine_bytes"` // Gorgonia's inputs and results
	Total       int64 `json:"total_bytes"`
}

// predictMemory returns the memory of this process, which has opened the model, in a run
// of a batch of sequences with length tokens each.
// loaded says that the weights are in memory already.
func predictMemory(s sampler, att attention, batch, length int, loaded bool) (memoryPrediction, error) {
	mem, err := s.memory(batch, length-s.newTokens(), att.Config)
	if err != nil {
		return memoryPrediction{}, err
	}
	garbage := limitGarbage(dataBytes(mem))
	program := garbage + residentMemory()
	if loaded {
		program = max(0, program-mem.Weights)
	}
	program += int64(runtime.GOMAXPROCS(0)) * (threadMemory + threadMemoryPerToken*int64(length))
	p := memoryPrediction{
		Batch: batch, Length: length, NewTokens: s.newTokens(), Method: att.method,
		Weights: mem.Checkpoint, Workspace: mem.Workspace, Columns: mem.Columns, Cache: mem.Cache, Program: program,
	}
	p.Peak = p.Weights + dataBytes(mem) + p.Program
	if mem.Weights != mem.Checkpoint {
		p.RandomWeights, p.RandomPeak = mem.Weights, mem.Total()+program
	}
	if need := mem.GPU; need.Total() > 0 {
		p.GPU = &gpuMemory{need.Weights, need.Columns, need.Scores, need.Activations, need.Machine, need.Total()}
	}
	return p, nil
}

// The kernels' working memory for each thread: packed weights and tiles, and the
// exponentials of a tile's rows, four panels of 32 queries for each key.
const (
	threadMemory         = 512 << 10
	threadMemoryPerToken = 4 * 32 * 4
)

// mapped says whether weights are mapped, as package safetensors does on Unix
// systems, and not read into memory when a model is opened.
var mapped = !slices.Contains([]string{"windows", "plan9", "js", "wasip1"}, runtime.GOOS)

// residentMemory is the memory of this process in bytes: the resident set on Linux,
// elsewhere the memory of the Go runtime.
func residentMemory() int64 {
	if n := procStatus("VmRSS"); n > 0 {
		return n
	}
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.Sys - s.HeapReleased)
}

// procStatus returns a size of Linux's /proc/self/status, in bytes, or 0.
func procStatus(field string) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}
