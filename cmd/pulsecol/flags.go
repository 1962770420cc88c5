package main

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// Flags for which zero is a valid value are pointers: nil is "not given". The tags model,
// method and schedule of a flag list the words to which it applies; without the tag it
// applies to all.

// checkApplies reports every given flag whose tag lists none of the words of have.
func checkApplies(line *kong.Context, tag, have, description string) error {
	var errs []error
	for _, p := range line.Path {
		if p.Flag == nil {
			continue
		}
		if !applies(p.Flag, tag, have) {
			errs = append(errs, usagef("--%s does not apply to %s", p.Flag.Name, description))
		}
	}
	return errors.Join(errs...)
}

// checkLists reports a given flag whose list is empty: the parser reads "--flag=" as an
// empty list.
func checkLists(line *kong.Context) error {
	for _, p := range line.Path {
		if f := p.Flag; f != nil && f.Value.Target.Kind() == reflect.Slice && f.Value.Target.Len() == 0 {
			return usagef("--%s is empty: want %s", f.Name, f.FormatPlaceHolder())
		}
	}
	return nil
}

// applies says whether a flag's tag lists one of the words of have.
func applies(f *kong.Flag, tag, have string) bool {
	only := strings.Fields(f.Tag.Get(tag))
	return len(only) == 0 || slices.ContainsFunc(strings.Fields(have), func(word string) bool { return slices.Contains(only, word) })
}

// Upper limits of flags that no model limits. They are above practical runs; larger values
// would overflow or never end.
const (
	maxTokens    = 1 << 20 // of a group, a block or a window
	maxBatch     = 1 << 16
	maxSteps     = 1 << 16 // of a schedule that is summed up
	maxRefreshes = 1 << 14 // as in pulsecol.Uniform
	maxScale     = 1e6     // of logits and scores, which are float32
)

// bounds collects the flags that are out of range.
type bounds struct{ errs []error }

func (b *bounds) atLeast(least int, flag string, v *int) {
	if v != nil && *v < least {
		b.errs = append(b.errs, usagef("--%s %d: want at least %d", flag, *v, least))
	}
}

func (b *bounds) between(least, most int, flag string, v *int) {
	if v != nil && (*v < least || *v > most) {
		b.errs = append(b.errs, usagef("--%s %d: want %d to %d", flag, *v, least, most))
	}
}

// interval requires a number in [least, most].
func (b *bounds) interval(least, most float64, flag string, v *float64) {
	if v != nil && !(*v >= least && *v <= most) {
		b.errs = append(b.errs, usagef("--%s %v: want %g to %g", flag, *v, least, most))
	}
}

// notEmpty requires text in the given flags for text.
func (b *bounds) notEmpty(line *kong.Context) {
	for _, p := range line.Path {
		if p.Flag == nil {
			continue
		}
		if v := reflect.Indirect(p.Flag.Target); v.Kind() == reflect.String && v.Len() == 0 {
			b.errs = append(b.errs, usagef("--%s is empty", p.Flag.Name))
		}
	}
}

// share requires a number in [0, 1), or with above0 in (0, 1].
func (b *bounds) share(above0 bool, flag string, v *float64) {
	switch {
	case v == nil:
	case above0 && !(*v > 0 && *v <= 1):
		b.errs = append(b.errs, usagef("--%s %v: want above 0, at most 1", flag, *v))
	case !above0 && !(*v >= 0 && *v < 1):
		b.errs = append(b.errs, usagef("--%s %v: want at least 0, below 1", flag, *v))
	}
}

// inside requires a number in (low, high).
func (b *bounds) inside(low, high float64, flag string, v *float64) {
	if v != nil && !(*v > low && *v < high) {
		b.errs = append(b.errs, usagef("--%s %v: want above %g, below %g", flag, *v, low, high))
	}
}

func (b *bounds) positive(flag string, v *float64) {
	if v != nil && !(*v > 0 && *v <= math.MaxFloat64) {
		b.errs = append(b.errs, usagef("--%s %v: want a finite number above 0", flag, *v))
	}
}

func (b *bounds) nonNegative(flag string, v *float64) {
	if v != nil && !(*v >= 0 && *v <= math.MaxFloat64) {
		b.errs = append(b.errs, usagef("--%s %v: want a finite number, at least 0", flag, *v))
	}
}

func (b *bounds) err() error { return errors.Join(b.errs...) }

// or returns *v, or otherwise if the flag was not given.
func or[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

// parseIDs reads token ids separated by commas, with or without brackets around
// them, that must lie in a vocabulary.
func parseIDs(flag, text string, vocab int) ([]int32, error) {
	list := strings.TrimSpace(text)
	if strings.HasPrefix(list, "[") && strings.HasSuffix(list, "]") {
		list = list[1 : len(list)-1]
	}
	var ids []int32
	for part := range strings.SplitSeq(list, ",") {
		part = strings.TrimSpace(part)
		id, err := strconv.Atoi(part)
		switch {
		case err != nil:
			return nil, usagef("--%s: %q at position %d is not a token id; want numbers such as 1,2,3", flag, part, len(ids))
		case id < 0 || id >= vocab:
			return nil, usagef("--%s: token id %d at position %d is outside the vocabulary, 0 to %d", flag, id, len(ids), vocab-1)
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}
