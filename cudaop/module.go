//go:build cuda

package cudaop

import (
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"gorgonia.org/cu"
	"gorgonia.org/tensor"
)

//go:embed modules/*.gz
var modules embed.FS

// hopper is the compute capability that modules named _sm90 are for. They use
// instructions that no other GPU has.
const hopper = 90

// forceSM80 makes tests on Hopper run the kernels of other GPUs.
var forceSM80 = false

// isHopper reports whether kernels named _sm90 run.
func (d *device) isHopper() bool { return d.capability == hopper && !forceSM80 }

// kernel returns a kernel of the module built from kernels/<file>.cu, which it
// loads if it is not.
func (r *runner) kernel(file, name string) (*cudaKernel, error) {
	if r.isPlanner() {
		return &cudaKernel{queue: r.queue, function: &function{rows: 1, cluster: 1}}, nil
	}
	if k := r.kernels[name]; k != nil {
		return k, nil
	}
	f, err := r.function(file, name)
	if err != nil {
		return nil, err
	}
	k := &cudaKernel{f, r.queue, len(r.queue.kernels)}
	r.queue.kernels = append(r.queue.kernels, k)
	r.kernels[name] = k
	return k, nil
}

// function returns a function of the module built from kernels/<file>.cu, which it loads if
// it is not.
func (d *device) function(file, name string) (*function, error) {
	if f := d.functions[name]; f != nil {
		return f, nil
	}
	m, ok := d.modules[file]
	if !ok {
		var err error
		if m, err = d.loadModule(file); err != nil {
			return nil, err
		}
		d.modules[file] = m
	}
	f, err := d.newFunction(m, name)
	if err != nil {
		return nil, err
	}
	d.functions[name] = f
	return f, nil
}

// typedKernel names a kernel that exists for bf16 and for float32 inputs.
type typedKernel struct {
	name        string
	elementType uint64
}

// typed returns the kernel of <name>.cu for inputs of a type.
func (d *runner) typed(name string, dt tensor.Dtype) (*cudaKernel, error) {
	key := typedKernel{name, elementType(dt)}
	if k := d.typedKernels[key]; k != nil {
		return k, nil
	}
	suffix := "_bf16"
	if dt == tensor.Float32 {
		suffix = "_f32"
	}
	k, err := d.kernel(name, name+suffix)
	if err == nil && !d.isPlanner() {
		d.typedKernels[key] = k
	}
	return k, err
}

// loadModule loads the cubin of a file on Hopper, and else, or if the driver does
// not take it, its PTX, which the driver compiles. Files for Hopper alone have no PTX.
func (d *device) loadModule(file string) (m cu.Module, err error) {
	forms := []string{"ptx"}
	switch {
	case strings.HasSuffix(file, "_sm90"):
		forms = []string{"cubin"}
	case d.isHopper():
		forms = []string{"cubin", "ptx"}
	}
	var errs []error
	for _, form := range forms {
		image, err := readModule(file + "." + form)
		if err == nil {
			m, err = cu.LoadData(image)
		}
		if err == nil {
			return m, nil
		}
		errs = append(errs, fmt.Errorf("%s.%s: %w", file, form, err))
	}
	return m, fmt.Errorf("cudaop: load module: %w", errors.Join(errs...))
}

func readModule(name string) (string, error) {
	f, err := modules.Open("modules/" + name + ".gz")
	if err != nil {
		return "", err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return "", err
	}
	image, err := io.ReadAll(z)
	return string(image), err
}

// The 8 bytes of each type of kernel argument.

func address(p cu.DevicePtr) uint64 { return uint64(p) }
func integer(n int) uint64          { return uint64(int64(n)) }
func float(f float64) uint64        { return math.Float64bits(f) }

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
