package eval

import (
	"fmt"
	"slices"
	"strings"
)

// Method is what attention computes: a row of the table. Settings that do not
// apply to the method are zero.
type Method struct {
	Name       string  `json:"method"`
	Sparsity   float64 `json:"sparsity,omitempty"` // share of query-key pairs dropped
	GroupSize  int     `json:"group_size,omitempty"`
	BlockSize  int     `json:"block_size,omitempty"`
	Schedule   string  `json:"schedule,omitempty"`
	Eta        float64 `json:"eta,omitempty"` // share of the steps in which refreshes fall
	Refreshes  int     `json:"refreshes,omitempty"`
	Drift      float64 `json:"drift,omitempty"` // threshold of an adaptive schedule
	Skip       float64 `json:"skip,omitempty"`  // share of the steps with full attention
	Window     int     `json:"window,omitempty"`
	Sinks      float64 `json:"sinks,omitempty"` // share of the keys that are always kept
	ScoreScale float64 `json:"score_scale,omitempty"`

	Cache        string `json:"cache,omitempty"`         // of keys and values: prefix or dual; "" is none
	PrefillEvery int    `json:"prefill_every,omitempty"` // blocks from one prefill to the next; 0 with a Cache is one prefill
}

// Baselines that the other methods are compared with.
const (
	Full     = "full"
	PulseCol = "pulsecol"
)

// settings lists m's settings other than its name and sparsity, for labels.
func (m Method) settings() []string {
	return []string{
		m.Schedule,
		setting(m.GroupSize, "group %d"),
		setting(m.BlockSize, "block %d"),
		setting(m.Refreshes, "refreshes %d"),
		setting(m.Eta, "eta %g"),
		setting(m.Drift, "drift %g"),
		setting(m.Skip, "skip %g"),
		setting(m.Window, "window %d"),
		setting(m.Sinks, "sinks %g"),
		setting(m.ScoreScale, "score scale %g"),
	}
}

// prefills is PrefillEvery in words.
func (m Method) prefills() string {
	if m.PrefillEvery == 0 {
		return "one prefill"
	}
	return fmt.Sprintf("prefill every %d", m.PrefillEvery)
}

func setting[T int | float64](v T, format string) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf(format, v)
}

// Labels returns a label for each of methods: "pulsecol (80 %)", with its cache and the
// settings in which it differs from others of the same name.
func Labels(methods []Method) []string {
	labels, settings := make([]string, len(methods)), make([][]string, len(methods))
	for i, m := range methods {
		settings[i] = m.settings()
	}
	for i, m := range methods {
		var in []string
		if m.Sparsity > 0 {
			in = append(in, fmt.Sprintf("%.4g %%", 100*m.Sparsity))
		}
		if m.Cache != "" {
			in = append(in, m.Cache+" cache")
			if slices.ContainsFunc(methods, func(o Method) bool { return o.Name == m.Name && o.Cache != "" && o.PrefillEvery != m.PrefillEvery }) {
				in = append(in, m.prefills())
			}
		}
		for s, text := range settings[i] {
			differs := false
			for k, other := range methods {
				differs = differs || other.Name == m.Name && settings[k][s] != text
			}
			if differs && text != "" {
				in = append(in, text)
			}
		}
		labels[i] = m.Name
		if len(in) > 0 {
			labels[i] += " (" + strings.Join(in, ", ") + ")"
		}
	}
	return labels
}
