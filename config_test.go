package pulsecol_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
)

// TestConfigValidate names every bad field and value.
func TestConfigValidate(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	type c = pulsecol.Config
	for _, tc := range []struct {
		cfg  c
		want string
	}{
		{c{Sparsity: 1.5}, "Sparsity is 1.5, want 0 <= Sparsity < 1"},
		{c{Sparsity: 1}, "Sparsity is 1, want"},
		{c{Sparsity: -0.1}, "Sparsity is -0.1"},
		{c{Sparsity: nan}, "Sparsity is NaN"},
		{c{GroupSize: -1}, "GroupSize is -1, want at least 1 (or 0 for 32)"},
		{c{Scale: nan}, "Scale is NaN"},
		{c{Scale: -1}, "Scale is -1"},
		{c{Scale: inf}, "Scale is +Inf"},
		{c{Threads: -1}, "Threads is -1"},
		{c{Precision: 5}, "Precision is Precision(5), want auto, float32, bfloat16, int16 or int8"},
		{c{Device: 9}, "Device is Device(9), want auto, cpu or cuda"},
		{c{Schedule: pulsecol.Uniform{Eta: 2}}, "Eta is 2, want 0 < Eta <= 1"},
		{c{Schedule: pulsecol.Uniform{Eta: -0.5}}, "Eta is -0.5"},
		{c{Schedule: pulsecol.Uniform{Eta: nan}}, "Eta is NaN"},
		{c{Schedule: pulsecol.Uniform{Refreshes: -1}}, "Refreshes is -1, want 1 to 16384"},
		{c{Schedule: pulsecol.Uniform{Refreshes: 1 << 20}}, "Refreshes is 1048576"},
		{c{Schedule: pulsecol.Random{Eta: 2}}, "Eta is 2"},
		{c{Schedule: pulsecol.Random{Refreshes: -3}}, "Refreshes is -3"},
		{c{Schedule: pulsecol.Power{Eta: nan}}, "Eta is NaN"},
		{c{Schedule: pulsecol.Adaptive{Eta: 2}}, "Eta is 2"},
		{c{Schedule: pulsecol.Adaptive{Refreshes: -3}}, "Refreshes is -3"},
		{c{Schedule: pulsecol.Adaptive{Threshold: 1.5}}, "Threshold is 1.5, want 0 < Threshold <= 1"},
		{c{Schedule: pulsecol.Adaptive{Threshold: nan}}, "Threshold is NaN"},
		{c{Schedule: pulsecol.Skip{Fraction: 1}}, "Fraction is 1, want 0 <= Fraction < 1"},
		{c{Schedule: pulsecol.Skip{Fraction: -0.2}}, "Fraction is -0.2"},
		{c{Schedule: pulsecol.Skip{Fraction: nan}}, "Fraction is NaN"},
		{c{Pattern: pulsecol.Blocks{Size: -1}}, "Size is -1"},
		{c{Pattern: pulsecol.SlidingWindow{Width: -1}}, "Width is -1"},
		{c{Pattern: pulsecol.Streaming{Width: -7}}, "Width is -7"},
		{c{Pattern: pulsecol.Streaming{SinkFraction: 1.1}}, "SinkFraction is 1.1"},
		{c{Pattern: pulsecol.Streaming{SinkFraction: nan}}, "SinkFraction is NaN"},
		{c{Pattern: pulsecol.SlidingWindow{}, Schedule: pulsecol.Adaptive{}}, "places refreshes, and Pattern window of 256 has none"},
		{c{Pattern: pulsecol.SparseD{BlockSize: -128}}, "BlockSize is -128"},
		{c{Pattern: pulsecol.SparseD{Generation: -1}}, "Generation is -1"},
		{c{Pattern: &pulsecol.SparseD{}}, "not a pointer"},
		{c{Pattern: (*pulsecol.Blocks)(nil)}, "not a pointer"},
		{c{Schedule: (*pulsecol.Uniform)(nil)}, "Schedule is a *pulsecol.Uniform, want the value and not a pointer to it"},
		{c{Schedule: &pulsecol.Uniform{}}, "not a pointer"},
		{c{Schedule: &pulsecol.Random{}}, "not a pointer"},
		{c{Schedule: &pulsecol.Power{}}, "not a pointer"},
		{c{Schedule: &pulsecol.Adaptive{}}, "not a pointer"},
		{c{Schedule: &pulsecol.Skip{}}, "not a pointer"},
		{c{Schedule: &pulsecol.Always{}}, "not a pointer"},
		{c{Schedule: &pulsecol.AlwaysDense{}}, "not a pointer"},
		{c{Schedule: (*custom)(nil)}, "Schedule is a nil *pulsecol_test.custom"},
		{c{Schedule: embedsPointer{}}, "Schedule pulsecol_test.embedsPointer: "},
		{c{Schedule: (*embedsPointer)(nil)}, "Schedule is a nil *pulsecol_test.embedsPointer"},
		{c{Schedule: embeds{pulsecol.Adaptive{Threshold: 2}}}, "Threshold is 2"},
		{c{Pattern: pulsecol.SparseD{ScoreScale: -1}}, "ScoreScale is -1"},
		{c{Pattern: pulsecol.SparseD{ScoreScale: nan}}, "ScoreScale is NaN"},
		{c{Pattern: pulsecol.SparseD{ScoreScale: inf}}, "ScoreScale is +Inf"},
	} {
		for name, err := range map[string]error{"Validate": tc.cfg.Validate(), "NewController": second(pulsecol.NewController(tc.cfg))} {
			if !errors.Is(err, pulsecol.ErrConfig) || !strings.Contains(fmt.Sprint(err), tc.want) {
				t.Errorf("%s of %+v: got %v, want ErrConfig with %q", name, tc.cfg, err, tc.want)
			}
		}
	}
	for _, good := range []c{
		{}, {Sparsity: math.Nextafter(1, 0)}, {Sparsity: 0.5, GroupSize: 1, Scale: 1e-30, Device: pulsecol.CPU},
		{Pattern: pulsecol.Columns{}, Schedule: pulsecol.Always{}}, {Pattern: pulsecol.Blocks{}, Schedule: pulsecol.AlwaysDense{}},
		{Pattern: pulsecol.Streaming{SinkFraction: 1}, Schedule: pulsecol.Random{Eta: 1, Refreshes: 1}},
		{Pattern: pulsecol.SparseD{}, Schedule: pulsecol.Skip{}}, {Schedule: pulsecol.Adaptive{}}, {Schedule: custom(nil)},
		{Schedule: embeds{}}, {Schedule: &embeds{}}, {Schedule: embedsPointer{&pulsecol.Adaptive{}}},
	} {
		if err := good.Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// custom is a schedule that a user defines.
type custom func(step, total int) pulsecol.Mode

func (f custom) Mode(step, total int) pulsecol.Mode { return f(step, total) }

// embeds and embedsPointer are schedules that a user defines around Adaptive.
type (
	embeds        struct{ pulsecol.Adaptive }
	embedsPointer struct{ *pulsecol.Adaptive }
)

// TestConfigValidateReportsAll: all problems at once, each wrapping ErrConfig.
func TestConfigValidateReportsAll(t *testing.T) {
	err := pulsecol.Config{
		Sparsity: 2, GroupSize: -2, Scale: -2, Device: 7, Threads: -1, Precision: 5,
		Pattern: pulsecol.Blocks{Size: -2}, Schedule: pulsecol.Skip{Fraction: 2},
	}.Validate()
	if got := strings.Count(fmt.Sprint(err), pulsecol.ErrConfig.Error()); got != 8 {
		t.Errorf("%d problems reported, want 8: %v", got, err)
	}
}

// TestPrecisionFor: left open, the precision is that of the device.
func TestPrecisionFor(t *testing.T) {
	for p, want := range map[pulsecol.Precision]pulsecol.Precision{
		pulsecol.AutoPrecision: pulsecol.Float32, pulsecol.Float32: pulsecol.Float32, pulsecol.BFloat16: pulsecol.BFloat16, pulsecol.Int16: pulsecol.Int16, pulsecol.Int8: pulsecol.Int8,
	} {
		ctl, err := pulsecol.NewController(pulsecol.Config{Device: pulsecol.CPU, Precision: p})
		if err != nil {
			t.Fatal(err)
		}
		if got := ctl.PrecisionFor(64); !reflect.DeepEqual(got, want) {
			t.Errorf("%v on the CPU is %v, want %v", p, got, want)
		}
	}
}

// TestDevice: asking for CUDA where there is none is an error; Auto falls back.
func TestDevice(t *testing.T) {
	if cudaop.Available() == nil {
		t.Skip("this machine has CUDA")
	}
	err := pulsecol.Config{Device: pulsecol.CUDA}.Validate()
	if !errors.Is(err, pulsecol.ErrConfig) || !strings.Contains(err.Error(), "Device is cuda, but CUDA is not available") {
		t.Errorf("got %v", err)
	}
	ctl, err := pulsecol.NewController(pulsecol.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if got := ctl.Config().Device; got != pulsecol.CPU {
		t.Errorf("Auto became %v, want cpu", got)
	}
	if got := fmt.Sprint(pulsecol.Auto, pulsecol.CPU, pulsecol.CUDA, pulsecol.Device(9)); got != "auto cpu cuda Device(9)" {
		t.Errorf("devices print as %s", got)
	}
}

// TestConfigDefaults: Controller.Config shows what the zero values stand for.
func TestConfigDefaults(t *testing.T) {
	ctl, err := pulsecol.NewController(pulsecol.Config{Sparsity: 0.5, Device: pulsecol.CPU})
	if err != nil {
		t.Fatal(err)
	}
	want := pulsecol.Config{
		Sparsity: 0.5, GroupSize: 32, Pattern: pulsecol.Columns{}, Schedule: pulsecol.Uniform{},
		Device: pulsecol.CPU, Name: "pulsecol",
	}
	if got := ctl.Config(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestPatternStrings(t *testing.T) {
	for want, p := range map[string]pulsecol.Pattern{
		"columns":                     pulsecol.Columns{},
		"blocks of 32":                pulsecol.Blocks{},
		"blocks of 8":                 pulsecol.Blocks{Size: 8},
		"window of 256":               pulsecol.SlidingWindow{},
		"window of 10":                pulsecol.SlidingWindow{Width: 10},
		"window of 256 and first 0.1": pulsecol.Streaming{},
		"window of 4 and first 0.5":   pulsecol.Streaming{Width: 4, SinkFraction: 0.5},
		"sparsed blocks of 128":       pulsecol.SparseD{},
		"fixed columns":               pulsecol.Fixed{},
		"sparsed blocks of 32":        pulsecol.SparseD{BlockSize: 32, Generation: 8},
	} {
		if got := p.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
