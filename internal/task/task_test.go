package task

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// write puts files into a new folder and returns it.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// userFolder has small files in the published formats, for every task that reads one.
func userFolder(t testing.TB) string {
	return write(t, map[string]string{
		"gsm8k.jsonl":     gsmLines,
		"HumanEval.jsonl": humanEvalLines,
		"essay.txt":       essayText,
		"squad.json":      squadJSON(40),
		"hotpotqa.json":   hotpotJSON(12),
	})
}

// allSpecs are all tasks, at a short length where they have one.
func allSpecs() []string {
	var specs []string
	for _, m := range makers() {
		spec := m.name
		if m.length != noLength {
			spec += "@900"
		}
		specs = append(specs, spec)
	}
	return specs
}

func TestTasksKeepTheirPromises(t *testing.T) {
	folder := userFolder(t)
	for _, spec := range allSpecs() {
		t.Run(spec, func(t *testing.T) {
			o := Options{Seed: 3, Count: countWords, Data: folder}
			task := newTask(t, spec, o)
			if want := strings.NewReplacer("/", "-", "@", "-").Replace(spec); task.Name() != want {
				t.Errorf("name %q, want %q", task.Name(), want)
			}
			if task.GenLength() < 0 || task.Len() < 1 {
				t.Errorf("%d tokens, %d samples", task.GenLength(), task.Len())
			}
			n := min(task.Len(), 4)
			same := newTask(t, spec, o)
			together := make([]Sample, n)
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() { together[i], _ = same.Sample(n - 1 - i) })
			}
			all.Wait()
			ids := map[string]bool{}
			for i := range n {
				s := sample(t, task, i)
				if diff := cmp.Diff(s, together[n-1-i]); diff != "" {
					t.Errorf("sample %d differs when asked for with others:\n%s", i, diff)
				}
				ids[s.ID] = true
				if s.Prompt == "" || s.ID == "" || len(s.Answers) == 0 {
					t.Errorf("sample %d: %+v", i, s)
				}
				right := task.Score(s, " "+strings.Join(s.Answers, ", "))
				if empty := task.Score(s, ""); spec != "humaneval" && (right != 1 || empty != 0) {
					t.Errorf("score %v of the answers, %v of nothing", right, empty)
				}
			}
			if len(ids) != n {
				t.Errorf("ids %v of %d samples", ids, n)
			}
			for _, i := range []int{-1, math.MinInt, task.Len()} {
				if i == math.MaxInt {
					continue
				}
				if _, err := task.Sample(i); err == nil || !strings.Contains(err.Error(), "sample ") {
					t.Errorf("sample %d: error %v", i, err)
				}
			}
		})
	}
}

func TestNewErrors(t *testing.T) {
	folder := userFolder(t)
	empty := t.TempDir()
	for _, c := range []struct {
		spec string
		o    Options
		want string
	}{
		{"", Options{}, `no task ""; there are retrieval, `},
		{"vt@4096", Options{Count: countWords}, "ruler/vt"},
		{"retrieval", Options{Count: countWords}, "want a length in tokens, such as retrieval@4096"},
		{"retrieval@512", Options{}, "needs a tokenizer"},
		{"gsm8k@512", Options{Count: countWords}, "gsm8k has no length"},
		{"lists@", Options{Count: countWords}, `length ""`},
		{"lists@-1", Options{Count: countWords}, `length "-1"`},
		{"lists@0", Options{Count: countWords}, `length "0"`},
		{"lists@99999999999999999999", Options{Count: countWords}, "from 1 to"},
		{"lists@1", Options{Count: countWords}, "no prompt of 1 tokens"},
		{"retrieval@3", Options{Count: countWords}, "no prompt of 3 tokens"},
		{"ruler/vt@100", Options{Count: countWords}, "the shortest text takes"},
		{"ruler/fwe@381", Options{Count: countWords}, "want at least 382 tokens"},
		{"ruler/cwe@1000000", Options{Count: countWords}, "want more in adjectives.txt"},
		{"gsm8k", Options{}, "needs data: want a folder with gsm8k.jsonl or test.jsonl"},
		{"gsm8k", Options{Data: empty}, "no gsm8k.jsonl or test.jsonl in " + empty},
		{"humaneval", Options{Data: filepath.Join(empty, "nothing")}, "nothing"},
		{"humaneval", Options{Data: empty}, "no HumanEval.jsonl.gz"},
		{"ruler/niah_single_2@900", Options{Count: countWords}, "PaulGrahamEssays.json"},
		{"ruler/niah_single_2@900", Options{Count: countWords, Data: empty}, "no text of essays"},
		{"ruler/qa_1@900", Options{Count: countWords, Data: empty}, "no squad.json or dev-v2.0.json"},
		{"ruler/qa_1@900", Options{Count: countWords, Data: filepath.Join(folder, "hotpotqa.json")}, "hotpotqa.json:1:1: "},
		{"ruler/qa_2@900", Options{Count: countWords, Data: filepath.Join(folder, "squad.json")}, "squad.json:1:1: "},
		{"gsm8k", Options{Data: folder, Exemplars: filepath.Join(folder, "squad.json")}, "squad.json:1:1: want a JSON array"},
		{"ruler/niah_single_1@900", Options{Count: countWords, Data: write(t, map[string]string{"nouns.txt": " \n"})}, "nouns.txt: no words"},
		{"ruler/niah_multikey_2@900", Options{Count: countWords, Data: write(t, map[string]string{"nouns.txt": "a b"})}, "want at least 1802"},
	} {
		task, err := New(c.spec, c.o)
		if err == nil || task != nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "task: ") {
			t.Errorf("%s: error %v, want %q", c.spec, err, c.want)
		}
	}
}

func TestStreamsDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for _, seed := range []uint64{0, 1, 1 << 63} {
		for _, name := range []string{"vt", "cwe"} {
			for _, i := range []int{0, 1, math.MaxInt} {
				seen[stream(seed, name, i).Uint64()] = true
			}
		}
	}
	if len(seen) != 3*2*3 {
		t.Errorf("%d different streams of 18", len(seen))
	}
}

func TestNames(t *testing.T) {
	names := Names()
	for _, want := range []string{"retrieval", "tracking", "gsm8k", "humaneval", "ruler/niah_multikey_3", "ruler/qa_2"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %q", want, names)
		}
	}
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	if len(slices.Compact(sorted)) != len(names) {
		t.Errorf("a name occurs twice: %q", names)
	}
}
