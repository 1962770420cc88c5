package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol/internal/jsonfile"
	"github.com/pulsecol/pulsecol/models"
)

// ConfigChecker collects the problems of a config.json or generation_config.json,
// each with its place.
type ConfigChecker struct {
	file   jsonfile.File
	places map[string]int // of the fields' values
	errs   []error
}

// DecodeConfig decodes such a file into the struct that v points to, and returns
// the checker of its fields. The error wraps models.ErrConfig.
func DecodeConfig(file jsonfile.File, v any) (*ConfigChecker, error) {
	places, err := file.Object(v)
	if err != nil {
		return nil, configError{err}
	}
	return &ConfigChecker{file: file, places: places}, nil
}

// configError is an error that names the file itself.
type configError struct{ error }

func (e configError) Unwrap() []error { return []error{models.ErrConfig, e.error} }

// maxSize bounds every size a config may name: far above any model, and small
// enough that a product of two does not overflow on a 64-bit machine.
const maxSize = 1 << 22

// maxLayers bounds the number of layers, each of which takes memory before the
// checkpoint is opened.
const maxLayers = 4096

// Check reports the value of a field unless right is true. format continues the message
// after the field's name: "is %d, want at least 1".
func (v *ConfigChecker) Check(right bool, field, format string, args ...any) {
	if !right {
		v.bad(field, format, args...)
	}
}

// Or returns *p, or the zero value for a field that is null or missing.
func Or[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// bad reports the value of a field, with its place if the file has the field.
func (v *ConfigChecker) bad(field, format string, args ...any) {
	err := fmt.Errorf("%s "+format, append([]any{field}, args...)...)
	if at, ok := v.places[field]; ok {
		err = v.file.Errorf(at, "%w", err)
	} else {
		err = fmt.Errorf("%s: %w", v.file.Name, err)
	}
	v.errs = append(v.errs, configError{err})
}

// Unsupported reports a field whose value selects an unsupported feature.
func (v *ConfigChecker) Unsupported(asked bool, field string, value, want any) {
	if asked {
		v.bad(field, "is %s, which is not supported; want %s", inJSON(value), inJSON(want))
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

// Size reports a size outside of 1 to maxSize.
func (v *ConfigChecker) Size(field string, n int) bool {
	if n < 1 || n > maxSize {
		v.bad(field, "is %d, want 1 to %d", n, maxSize)
		return false
	}
	return true
}

// Layers reports a number of layers outside of 1 to maxLayers.
func (v *ConfigChecker) Layers(field string, n int) {
	if n < 1 || n > maxLayers {
		v.bad(field, "is %d, want 1 to %d", n, maxLayers)
	}
}

// Heads checks how features split into heads and returns the head dimension:
// given, if it is not nil, else hidden/heads.
func (v *ConfigChecker) Heads(headsField string, heads int, kvField string, kv int, hiddenField string, hidden int, given *int) (dim int) {
	if !v.Size(headsField, heads) || !v.Size(kvField, kv) || hidden < 1 {
		return 0
	}
	if heads%kv != 0 {
		v.bad(headsField, "is %d, which is not a multiple of %s %d", heads, kvField, kv)
	}
	switch {
	case given != nil:
		dim = *given
		if dim < 2 || dim%2 != 0 || dim > maxSize {
			v.bad("head_dim", "is %d, want a positive even number", dim)
		}
	case hidden%heads != 0 || hidden/heads%2 != 0:
		v.bad(hiddenField, "is %d, which over %s %d is not an even head dimension", hidden, headsField, heads)
	default:
		dim = hidden / heads
	}
	return dim
}

// Positive reports a number that is not positive and finite.
func (v *ConfigChecker) Positive(field string, x float64) {
	if !(x > 0) || math.IsInf(x, 0) {
		v.bad(field, "is %v, want a positive number", x)
	}
}

// Token returns a required token id, which must lie in the vocabulary.
func (v *ConfigChecker) Token(field string, id *int32, vocab int) int32 {
	switch {
	case id == nil:
		v.bad(field, "is missing")
		return 0
	case *id < 0 || int(*id) >= vocab:
		v.bad(field, "is %d, want 0 to %d", *id, vocab-1)
	}
	return *id
}

// Err returns all problems, joined.
func (v *ConfigChecker) Err() error { return errors.Join(v.errs...) }
