package compat

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The names that cu calls by other parameters than CUDA 13's, and what CUDA 13's
// header makes of them.
const cudaNames = `
#define cuCtxCreate cuCtxCreate_v4
#define cuMemAdvise cuMemAdvise_v2
#define cuMemPrefetchAsync cuMemPrefetchAsync_v2
#define cuGraphAddDependencies cuGraphAddDependencies_v2
#define cuGraphRemoveDependencies cuGraphRemoveDependencies_v2
#define cuGraphGetEdges cuGraphGetEdges_v2
#define cuGraphNodeGetDependencies cuGraphNodeGetDependencies_v2
#define cuGraphNodeGetDependentNodes cuGraphNodeGetDependentNodes_v2
`

const cudaCalls = "cuMemAdvise cuMemPrefetchAsync cuGraphAddDependencies cuGraphRemoveDependencies " +
	"cuGraphGetEdges cuGraphNodeGetDependencies cuGraphNodeGetDependentNodes"

// TestCUDAVersions: CUDA before 13 keeps its names but for those of contexts, and CUDA 13
// gives cu the functions it knows. All make references to the primary context.
func TestCUDAVersions(t *testing.T) {
	for version, changed := range map[int]bool{10020: false, 11080: false, 12040: false, 12090: false, 13000: true, 13010: true} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			header := fmt.Sprintf("#define CUDA_VERSION %d\n%s", version, cudaNames)
			with, without := preprocess(t, "cuda.h", header, cudaCalls+" cuCtxCreate cuCtxDestroy")
			uses := strings.TrimSpace(with[strings.LastIndex(with, "}")+1:])
			names, contexts := strings.CutSuffix(uses, " pulsecol_make_context pulsecol_drop_context")
			if !contexts {
				t.Errorf("names become %q, want the last two to be pulsecol's", uses)
			}
			if !changed {
				if want, _ := strings.CutSuffix(strings.TrimSpace(without), " cuCtxCreate_v4 cuCtxDestroy"); names != want {
					t.Errorf("names become %q, the header alone makes them %q", names, want)
				}
				return
			}
			if names != cudaCalls {
				t.Errorf("names become %q, want %q", names, cudaCalls)
			}
			for name := range strings.FieldsSeq(names) {
				if !strings.Contains(with, name+"(") {
					t.Errorf("%s is not declared", name)
				}
			}
		})
	}
}

// removed are the functions that cu/dnn calls and cuDNN 9 has not.
var removed = []string{
	"cudnnCreateAlgorithmDescriptor", "cudnnSetAlgorithmDescriptor", "cudnnDestroyAlgorithmDescriptor",
	"cudnnCreateAlgorithmPerformance", "cudnnSetAlgorithmPerformance", "cudnnDestroyAlgorithmPerformance",
	"cudnnCreatePersistentRNNPlan", "cudnnSetPersistentRNNPlan", "cudnnDestroyPersistentRNNPlan",
	"cudnnSetRNNMatrixMathType",
}

// TestCuDNNVersions: cuDNN before 9 has its header to itself; cuDNN 9 gets the
// functions that it removed.
func TestCuDNNVersions(t *testing.T) {
	for version, changed := range map[int]bool{7: false, 8: false, 9: true, 10: true} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			with, without := preprocess(t, "cudnn.h", fmt.Sprintf("#define CUDNN_MAJOR %d\n", version), "")
			if !changed {
				if with != without {
					t.Errorf("got %q, the header alone gives %q", with, without)
				}
				return
			}
			for _, name := range removed {
				if !strings.Contains(with, "static inline cudnnStatus_t "+name+"(") {
					t.Errorf("%s is not defined", name)
				}
			}
			if n := strings.Count(with, "{ return CUDNN_STATUS_NOT_SUPPORTED; }"); n != len(removed) {
				t.Errorf("%d functions defined, want %d", n, len(removed))
			}
		})
	}
}

// preprocess returns the output of the C preprocessor for a header followed by code, with
// this package's headers first and without them.
func preprocess(t *testing.T, name, header, code string) (with, without string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(header), 0o666); err != nil {
		t.Fatal(err)
	}
	run := func(include ...string) string {
		args := append([]string{"-E", "-P", "-nostdinc", "-x", "c"}, include...)
		cmd := exec.Command(cc, append(args, "-")...)
		cmd.Stdin = strings.NewReader(fmt.Sprintf("#include <%s>\n%s\n", name, code))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
		return string(out)
	}
	return run("-I.", "-I"+dir), run("-I" + dir)
}
