package chaos

import (
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

var (
	whole   = os.Getenv("PULSECOL_CHAOS") != "" // all trials instead of a short part of them
	oneSeed = flag.Int("seed", -1, "run the trials of this seed alone")
)

// program is the path of the command under test.
var program string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	if testing.Short() {
		fmt.Println("the trials of a built command do not run with -short")
		return 0
	}
	dir, err := os.MkdirTemp("", "pulsecol-chaos-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "pulsecol")
	build := exec.Command("go", "build", "-o", program, "github.com/pulsecol/pulsecol/cmd/pulsecol")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	status := m.Run()
	trials.print()
	return status
}

// seeSources looks at every folder of the module, once. The go command repeats an
// earlier result of a test unless a file has changed that a test has seen itself; what
// TestMain sees and what a compiler reads do not count.
var seeSources = sync.OnceValue(func() error {
	return filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == ".git" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return err
	})
})

// trials counts what was tried.
var trials = counts{n: map[string]int{}}

type counts struct {
	mu   sync.Mutex
	n    map[string]int
	peak int64 // bytes of memory of the largest process
}

func (c *counts) add(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[kind]++
}

func (c *counts) sawMemory(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peak = max(c.peak, bytes)
}

func (c *counts) print() {
	for _, kind := range slices.Sorted(maps.Keys(c.n)) {
		fmt.Printf("%6d %s\n", c.n[kind], kind)
	}
	fmt.Printf("largest process: %d MiB\n", c.peak>>20)
}

// pick returns the number of trials in a short run and in a whole one.
func pick(short, all int) int {
	if whole {
		return all
	}
	return short
}

// seeds yields the seeds 0 to n-1, or the one seed that was asked for.
func seeds(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		if *oneSeed >= 0 {
			yield(*oneSeed)
			return
		}
		for seed := range n {
			if !yield(seed) {
				return
			}
		}
	}
}

// seeded calls trial with seeds, several at once.
func seeded(n int, trial func(seed int)) {
	var wg sync.WaitGroup
	free := make(chan bool, 3)
	for seed := range seeds(n) {
		free <- true
		wg.Go(func() {
			defer func() { <-free }()
			trial(seed)
		})
	}
	wg.Wait()
}
