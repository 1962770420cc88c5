// Command cudaenv prints the settings with which programs build under -tags cuda,
// as shell commands:
//
//	eval "$(go run github.com/pulsecol/pulsecol/cudaop/cudaenv)"
//	go build -tags cuda ./...
//
// It works in this module and in every module that requires it. CUDA is looked for
// in $CUDA_HOME, $CUDA_PATH, next to nvcc and in the usual places, cuDNN in
// $CUDNN_HOME, with CUDA and in the usual places.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const compat = "github.com/pulsecol/pulsecol/cudaop/compat"

func main() {
	flags, err := find(os.Getenv)
	if err == nil {
		var out []byte
		// The headers lie in this module, wherever the build finds it.
		if out, err = exec.Command("go", "list", "-find", "-f", "{{.Dir}}", compat).Output(); err == nil {
			flags.include = slices.Insert(flags.include, 0, strings.TrimSpace(string(out)))
			fmt.Print(flags)
			return
		}
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			err = fmt.Errorf("go list: %s", failed.Stderr)
		}
	}
	fmt.Fprintln(os.Stderr, "cudaenv:", err)
	os.Exit(1)
}

// flags are the folders that the C compiler and the linker need, in their order.
type flags struct {
	include, lib []string
}

// String is the shell's form of f. Go's own default flags are replaced by these, so
// they are among them.
func (f flags) String() string {
	return fmt.Sprintf("export CGO_CFLAGS='-g -O2 -I%s' CGO_LDFLAGS='-g -O2 -L%s'\n",
		strings.Join(f.include, " -I"), strings.Join(f.lib, " -L"))
}

// find looks for CUDA and cuDNN.
func find(env func(string) string) (flags, error) {
	roots := []string{env("CUDA_HOME"), env("CUDA_PATH")}
	if nvcc, err := exec.LookPath("nvcc"); err == nil {
		if nvcc, err = filepath.EvalSymlinks(nvcc); err == nil {
			roots = append(roots, filepath.Dir(filepath.Dir(nvcc)))
		}
	}
	roots = append(roots, "/usr/local/cuda", "/opt/cuda", "/usr")
	cuda := with("cuda.h", roots)
	if cuda == "" {
		return flags{}, fmt.Errorf("found no include/cuda.h in %s; set CUDA_HOME", list(roots))
	}
	roots = []string{env("CUDNN_HOME"), cuda, "/usr", "/usr/local"}
	cudnn := with("cudnn.h", roots)
	if cudnn == "" {
		return flags{}, fmt.Errorf("found no include/cudnn.h in %s; set CUDNN_HOME", list(roots))
	}
	var f flags
	for _, root := range []string{cuda, cudnn} {
		// cublas_v2.h includes nv/target, which CUDA 13 keeps in cccl.
		f.include = add(f.include, root, "include", "include/cccl", "include/*-linux-gnu")
		// The driver's library is linked by its stub where there is no driver.
		f.lib = add(f.lib, root, "lib64", "lib", "lib/*-linux-gnu", "lib64/stubs")
	}
	return f, nil
}

// with returns the first root that has a header.
func with(header string, roots []string) string {
	for _, root := range roots {
		for _, dir := range []string{"include", "include/*-linux-gnu"} {
			if found, _ := filepath.Glob(filepath.Join(root, dir, header)); root != "" && len(found) > 0 {
				return root
			}
		}
	}
	return ""
}

// add appends those folders of root that exist and are not in dirs yet. It leaves out
// /usr/include: the C compiler searches it anyway, and an explicit option changes the order.
func add(dirs []string, root string, patterns ...string) []string {
	for _, p := range patterns {
		found, _ := filepath.Glob(filepath.Join(root, p))
		for _, dir := range found {
			if dir != "/usr/include" && !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

func list(roots []string) string {
	roots = slices.DeleteFunc(slices.Clone(roots), func(s string) bool { return s == "" })
	return strings.Join(slices.Compact(roots), ", ")
}
