package pulsecol

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/op"
)

// Config determines which query-key pairs attention computes and when this selection is
// refreshed. The zero value is dense attention.
type Config struct {
	// Sparsity is the share of keys each query drops (ρ in the paper), in [0, 1).
	// 0 means dense attention in every step. Patterns that are fixed by position
	// (SlidingWindow, Streaming) and Fixed ignore it.
	Sparsity float64

	// GroupSize is the number of consecutive queries that share one set of keys;
	// the last group may be short. 0 = 32, the most accurate in the paper. SparseD
	// uses its own block size instead, and Fixed the groups of its tables, which a
	// GroupSize must agree with.
	GroupSize int

	// Pattern is the shape of what is kept; nil = Columns{}.
	Pattern Pattern

	// Layers, if not nil, returns the settings of layer i, given those of all layers, which
	// are the fields above. It is called once for each layer, and again by SetSparsity, and
	// returns the same each time. One schedule serves all layers: in its dense steps all are
	// dense, in its refreshes layers with keys that never change keep these, and layers of
	// sparsity 0 are always dense. A Cache has the same settings in all layers.
	Layers func(i int, all LayerConfig) LayerConfig

	// Schedule says which steps refresh; nil = Uniform{}, the paper's. Patterns fixed by
	// position, and Fixed, never refresh: Adaptive is an error with them.
	Schedule Schedule

	// Cache says which keys and values stay from step to step; the zero value is none.
	Cache Cache

	// PrefillEvery is the number of blocks from one prefill to the next under a Cache: 1 as
	// published, at every block. 0 = at the first block alone.
	PrefillEvery int

	// Scale multiplies q·k; 0 = 1/sqrt(head dimension).
	Scale float64

	// Precision is what the operands of q·k, of the product with v and, in the
	// blocks of package graph, of linear layers are rounded to. The zero value,
	// AutoPrecision, is Float32 on the CPU, which does not round, and BFloat16 on
	// GPUs. BFloat16 and Int16 give other results, BFloat16 with about the error of
	// rounding weights and activations to bfloat16, Int16 as a rule with less. Int8 rounds
	// nothing but the inputs of linear layers whose weights are quantized. Which
	// of them is fastest on the CPU depends on the processor; see docs/cpu-precision.md. On the
	// CPU softmax, scores and gradients are float32, and so are all values between
	// operators. On GPUs values between operators are of the same precision, and there
	// is no Int16 and no Int8.
	Precision Precision

	// Device is where the operators run; the zero value is Auto.
	Device Device

	// Threads is the most threads that compute a step; 0 = GOMAXPROCS. Results do
	// not depend on it. Many generations at once run best with one thread each.
	Threads int

	// Name is the first part of the layers' paths, which identify their operators
	// in a graph; "" = "pulsecol". All layers of a graph belong to one controller, because a
	// step has one mode and one plan of memory; Layers gives them settings of their own.
	Name string

	// Observer, if not nil, gets the queries and keys of every attention layer in every
	// step, for inspection of a model.
	Observer Observer
}

// Precision is what the operands of products are rounded to.
type Precision = op.Precision

// The precisions of products.
const (
	AutoPrecision = op.AutoPrecision // Float32 on the CPU, BFloat16 on GPUs
	Float32       = op.Float32
	BFloat16      = op.BFloat16 // 8 significant bits
	Int16         = op.Int16    // integers with a common scale, 12 bits and a sign for a head dimension of 128
	Int8          = op.Int8     // 8 bits with a scale for 32, of inputs of quantized weights
)

// Device is where operators run.
type Device uint8

const (
	Auto Device = iota // CUDA where it is available, else the CPU
	CPU
	CUDA
)

func (d Device) String() string {
	switch d {
	case Auto:
		return "auto"
	case CPU:
		return "cpu"
	case CUDA:
		return "cuda"
	}
	return fmt.Sprintf("Device(%d)", uint8(d))
}

// ErrConfig is wrapped by every error about a Config.
var ErrConfig = errors.New("pulsecol: invalid config")

// Validate returns every problem of c, joined, or nil.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...)))
	}
	if !(c.Sparsity >= 0 && c.Sparsity < 1) {
		bad("Sparsity is %v, want 0 <= Sparsity < 1", c.Sparsity)
	}
	if c.GroupSize < 0 {
		bad("GroupSize is %d, want at least 1 (or 0 for %d)", c.GroupSize, op.DefaultGroup)
	}
	if c.Threads < 0 {
		bad("Threads is %d, want at least 1 (or 0 for GOMAXPROCS)", c.Threads)
	}
	if !(c.Scale >= 0) || math.IsInf(c.Scale, 0) {
		bad("Scale is %v, want a finite number above 0 (or 0 for 1/sqrt(head dimension))", c.Scale)
	}
	if isPointer(c.Pattern) {
		bad("Pattern is a %T, want the value and not a pointer to it", c.Pattern)
	} else if v, ok := c.Pattern.(validator); ok {
		if err := v.validate(); err != nil {
			bad("Pattern %v: %v", c.Pattern, err)
		}
	}
	if err := validSchedule(c.Schedule); err != nil {
		bad("%v", err)
	}
	if p, ok := c.Pattern.(Fixed); ok {
		if group := p.group(); group > 0 && c.GroupSize > 0 && c.GroupSize != group {
			bad("GroupSize is %d, want %d as the tables of Pattern %v have, or 0 for that", c.GroupSize, group, p)
		}
	}
	_, isAdaptive := c.Schedule.(adaptive)
	switch c.Pattern.(type) {
	case SlidingWindow, Streaming, Fixed:
		if isAdaptive {
			bad("Schedule %v places refreshes, and Pattern %v has none", c.Schedule, c.Pattern)
		}
	}
	switch {
	case c.Cache > DualCache:
		bad("Cache is %v, want none, prefix or dual", c.Cache)
	case c.PrefillEvery < 0:
		bad("PrefillEvery is %d, want at least 1 (or 0 for the first block alone)", c.PrefillEvery)
	case c.Cache == NoCache:
		if c.PrefillEvery != 0 {
			bad("PrefillEvery is %d, which needs a Cache", c.PrefillEvery)
		}
	case c.Layers != nil:
		bad("Layers is set, and Cache %v needs the same settings in all layers", c.Cache)
	case isAdaptive:
		bad("Schedule %v measures drift over all rows, of which steps with Cache %v compute few", c.Schedule, c.Cache)
	default:
		switch p := c.Pattern.(type) {
		case SparseD, Fixed:
			bad("Pattern %v has no columns for the rows of a block, which Cache %v needs; want columns, blocks or a pattern fixed by position", p, c.Cache)
		}
	}
	if c.Precision.Validate() != nil {
		bad("Precision is %v, want auto, float32, bfloat16, int16 or int8", c.Precision)
	}
	switch c.Device {
	case Auto, CPU:
	case CUDA:
		if err := c.gpu(); err != nil {
			bad("Device is cuda, but %v", err)
		}
	default:
		bad("Device is %v, want auto, cpu or cuda", c.Device)
	}
	return errors.Join(errs...)
}

// gpu returns why attention under c cannot run on a GPU for any model, or nil.
func (c Config) gpu() error {
	if err := cudaop.Available(); err != nil {
		return err
	}
	if _, ok := c.Schedule.(adaptive); ok {
		return errors.New("Schedule Adaptive is measured on the CPU only")
	}
	if c.Observer != nil {
		return errors.New("an Observer sees what is on the CPU only")
	}
	if c.Precision == Int16 || c.Precision == Int8 {
		return fmt.Errorf("Precision %v is the CPU's; GPUs take float32 and bfloat16", c.Precision)
	}
	return nil
}

type validator interface{ validate() error }

func isPointer(v any) bool { return v != nil && reflect.TypeOf(v).Kind() == reflect.Pointer }

// withDefaults replaces zero values by the defaults they stand for.
func (c Config) withDefaults() Config {
	if c.Pattern == nil {
		c.Pattern = Columns{}
	}
	if c.Schedule == nil {
		c.Schedule = Uniform{}
	}
	if p, ok := c.Pattern.(Fixed); ok {
		c.GroupSize = p.group()
	}
	if c.GroupSize == 0 {
		c.GroupSize = op.DefaultGroup
	}
	if c.Name == "" {
		c.Name = "pulsecol"
	}
	if c.Device == Auto {
		c.Device = CPU
		if c.gpu() == nil {
			c.Device = CUDA
		}
	}
	return c
}
