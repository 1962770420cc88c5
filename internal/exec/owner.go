package exec

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"
)

// In reports whether operators of the layer are in g.
func (s *State) In(g *gorgonia.ExprGraph) bool {
	for _, n := range g.AllNodes() {
		if o, ok := n.Op().(Operator); ok && o.Layer() == s {
			return true
		}
	}
	return false
}

// Owns returns an error wrapping ErrOwner if operators of g compute under another
// Step. Those of a layer compute under the Step of its State, in a clone of their
// graph as well. Others compute under the Step that they are bound to, until its
// Release.
func (s *Step) Owns(g *gorgonia.ExprGraph) error {
	var others []*Step // in order of appearance
	foreign := map[*Step][]string{}
	add := func(other *Step, what string) {
		if len(foreign[other]) == 0 {
			others = append(others, other)
		}
		foreign[other] = append(foreign[other], what)
	}
	seen := map[*State]bool{}
	for _, n := range g.AllNodes() {
		o, ok := n.Op().(Operator)
		if !ok {
			continue
		}
		switch l, step := o.Layer(), o.BoundTo(); {
		case l != nil && l.step != s && !seen[l]:
			seen[l] = true
			add(l.step, fmt.Sprintf("layer %q", l.path))
		case l == nil && step != nil && step != s && step.bound > 0:
			add(step, o.String())
		}
	}
	var errs []error
	for _, other := range others {
		names, more := foreign[other], ""
		if len(names) > 1 {
			more = fmt.Sprintf(" (and %d more)", len(names)-1)
		}
		errs = append(errs, fmt.Errorf("op: %s%s %w, %q; the machine's is %q", names[0], more, ErrOwner, other.Name, s.Name))
	}
	return errors.Join(errs...)
}
