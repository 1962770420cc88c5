package cudaop_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestModulesAreCurrent: the committed modules were built from the current kernels with the
// current script, kernels/build.sh.
func TestModulesAreCurrent(t *testing.T) {
	text, err := os.ReadFile("modules/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Compiler string
		Sources  map[string]string
		Modules  map[string]struct{ Source, Flags, SHA256 string }
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Compiler == "" {
		t.Error("the manifest does not name the compiler")
	}

	sources := files(t, "kernels/*.cu", "kernels/*.cuh", "kernels/build.sh")
	if got := slices.Sorted(maps.Keys(manifest.Sources)); !slices.Equal(got, sources) {
		t.Errorf("modules built from %v, there are %v", got, sources)
	}
	for name, want := range manifest.Sources {
		if got := digest(t, "kernels/"+name); got != want {
			t.Errorf("kernels/%s has changed since the modules were built; run kernels/build.sh", name)
		}
	}

	modules := files(t, "modules/*.gz")
	if got := slices.Sorted(maps.Keys(manifest.Modules)); !slices.Equal(got, modules) {
		t.Errorf("the manifest lists %v, there are %v", got, modules)
	}
	built := map[string]bool{}
	for name, m := range manifest.Modules {
		if got := digest(t, "modules/"+name); got != m.SHA256 {
			t.Errorf("modules/%s is not the file that was built", name)
		}
		built[m.Source] = true
	}
	for _, source := range sources {
		if strings.HasSuffix(source, ".cu") && !built[source] {
			t.Errorf("kernels/%s has no module", source)
		}
	}
}

// files returns the names of the files that match, sorted.
func files(t *testing.T, patterns ...string) (names []string) {
	t.Helper()
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil || len(found) == 0 {
			t.Fatalf("no %s: %v", p, err)
		}
		for _, f := range found {
			names = append(names, filepath.Base(f))
		}
	}
	slices.Sort(names)
	return names
}

func digest(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
