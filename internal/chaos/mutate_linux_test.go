package chaos

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// oddJSON are values that a field does not expect.
var oddJSON = []string{
	"null", "true", "false", "0", "-1", "1", "1.5", "1e308", "1e999", "-1e999", "1e-999", "9223372036854775807", "9223372036854775808",
	"-9223372036854775808", "18446744073709551616", "4294967296", "2147483648", "1000000000000", "123456789012345678901234567890", "NaN", "Infinity", "01", "+1", "0x10",
	`""`, `"x"`, `"1"`, `"\u0000"`, `"\ud800"`, `"` + strings.Repeat("x", 1<<16) + `"`, "\"\xff\"", `"é\u202e"`, "[]", "{}", "[null]", `[""]`, `[[]]`, `{"":""}`, `[-1]`, "[1,2,3]",
	strings.Repeat("[", 20000) + strings.Repeat("]", 20000), strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000),
	strings.Repeat("[", 100000), "[" + strings.Repeat("0,", 100000) + "0]", "",
}

// oddText is what a text may not have, or seldom has.
var oddText = []string{
	"\x00", "\xff\xfe", "\xef\xbb\xbf", "\n", "\r\n", "\n\n\n", "{", "}", "[", "]", `"`, `\`, ",", ":", "null", "1e999", "-", "\x1b[2J", "\u2028", "{{", "}}", "{%", "%}", "{{ 1 // 0 }}",
	"{% for a in range(1000000000) %}{% for b in range(1000000000) %}{% endfor %}{% endfor %}", strings.Repeat("(", 10000), strings.Repeat("a", 1<<16),
}

func oneOf[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// mutated returns text with something wrong.
func mutated(rng *rand.Rand, text string) string {
	if rng.IntN(2) == 0 {
		if out, ok := mutatedJSON(rng, text); ok {
			return out
		}
	}
	if text == "" {
		return oneOf(rng, oddText)
	}
	from := rng.IntN(len(text))
	to := min(len(text), from+1+rng.IntN(64))
	switch rng.IntN(6) {
	case 0: // another byte here and there
		b := []byte(text)
		for range 1 + rng.IntN(4) {
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		}
		return string(b)
	case 1: // cut off
		return text[:from]
	case 2: // a part is missing
		return text[:from] + text[to:]
	case 3: // a part comes twice
		return text[:to] + text[from:]
	case 4: // two texts
		return text + text
	}
	return text[:from] + oneOf(rng, oddText) + text[from:]
}

// mutatedJSON changes a value of a JSON text, or of one of its lines if each is one.
func mutatedJSON(rng *rand.Rand, text string) (string, bool) {
	if out, ok := mutatedValue(rng, text); ok {
		return out, true
	}
	lines := strings.SplitAfter(text, "\n")
	i := rng.IntN(len(lines))
	out, ok := mutatedValue(rng, lines[i])
	lines[i] = out + "\n"
	return strings.Join(lines, ""), ok
}

// place holds the place of a value that package json would not write.
const place = "the place of another value"

func mutatedValue(rng *rand.Rand, text string) (string, bool) {
	var root any
	if json.Unmarshal([]byte(text), &root) != nil {
		return "", false
	}
	var changes []func()
	add := func(change func()) { changes = append(changes, change) }
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				add(func() { v[key] = place })
				add(func() { delete(v, key) })
				add(func() { v[strings.ToUpper(key)] = v[key] })
				walk(v[key])
			}
		case []any:
			for i := range v {
				add(func() { v[i] = place })
				walk(v[i])
			}
		}
	}
	walk(root)
	if len(changes) == 0 {
		return oneOf(rng, oddJSON), true
	}
	if rng.IntN(2) == 0 { // large files have few values of the first levels
		changes = changes[:min(len(changes), 100)]
	}
	for range 1 + rng.IntN(2) {
		oneOf(rng, changes)()
	}
	out, err := json.Marshal(root)
	if err != nil {
		return "", false
	}
	return strings.ReplaceAll(string(out), `"`+place+`"`, oneOf(rng, oddJSON)), true
}
