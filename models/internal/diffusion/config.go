package diffusion

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// ConfigChecker collects the problems of a config.json.
type ConfigChecker struct{ errs []error }

// maxSize bounds every size a config may name: far above any model, and small
// enough that a product of two does not overflow on a 64-bit machine.
const maxSize = 1 << 22

// maxLayers bounds the number of layers, each of which costs memory before the
// checkpoint is even looked at.
const maxLayers = 4096

func (v *ConfigChecker) bad(format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...)))
}

// Unsupported reports a field whose value asks for something that is not done.
func (v *ConfigChecker) Unsupported(asked bool, field string, value, want any) {
	if asked {
		v.bad("%s is %s, which is not supported; want %s", field, inJSON(value), inJSON(want))
	}
}

func inJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	if len(text) > 100 {
		text = append(text[:100], "..."...)
	}
	return string(text)
}

// Size reports a size that is not positive or is absurd.
func (v *ConfigChecker) Size(field string, n int) bool {
	if n < 1 || n > maxSize {
		v.bad("%s is %d, want 1 to %d", field, n, maxSize)
		return false
	}
	return true
}

// Layers reports a number of layers that is not positive or is absurd.
func (v *ConfigChecker) Layers(field string, n int) {
	if n < 1 || n > maxLayers {
		v.bad("%s is %d, want 1 to %d", field, n, maxLayers)
	}
}

// Heads checks how features split into heads and returns the head dimension:
// given, if it is not nil, else hidden/heads.
func (v *ConfigChecker) Heads(headsField string, heads int, kvField string, kv int, hiddenField string, hidden int, given *int) (dim int) {
	if !v.Size(headsField, heads) || !v.Size(kvField, kv) || hidden < 1 {
		return 0
	}
	if heads%kv != 0 {
		v.bad("%s %d is not a multiple of %s %d", headsField, heads, kvField, kv)
	}
	switch {
	case given != nil:
		dim = *given
		if dim < 2 || dim%2 != 0 || dim > maxSize {
			v.bad("head_dim is %d, want a positive even number", dim)
		}
	case hidden%heads != 0 || hidden/heads%2 != 0:
		v.bad("%s %d over %s %d is not an even head dimension", hiddenField, hidden, headsField, heads)
	default:
		dim = hidden / heads
	}
	return dim
}

// Positive reports a number that is not positive and finite.
func (v *ConfigChecker) Positive(field string, x float64) {
	if !(x > 0) || math.IsInf(x, 0) {
		v.bad("%s is %v, want a positive number", field, x)
	}
}

// Token returns a token id that must be there and lie in the vocabulary.
func (v *ConfigChecker) Token(field string, id *int32, vocab int) int32 {
	switch {
	case id == nil:
		v.bad("%s is missing", field)
		return 0
	case *id < 0 || int(*id) >= vocab:
		v.bad("%s is %d, want 0 to %d", field, *id, vocab-1)
	}
	return *id
}

// Err returns all problems, joined.
func (v *ConfigChecker) Err() error { return errors.Join(v.errs...) }
