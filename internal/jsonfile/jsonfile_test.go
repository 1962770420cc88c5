package jsonfile

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// config has a field of every kind that model files have.
type config struct {
	Heads  int             `json:"n_heads"`
	Mask   *int32          `json:"mask"`
	Theta  float64         `json:"theta"`
	Rope   bool            `json:"rope"`
	Type   string          `json:"type"`
	Any    any             `json:"any"`
	List   []string        `json:"list"`
	Nested struct{ A int } `json:"nested"`
}

func TestObject(t *testing.T) {
	const text = "{\n  \"n_heads\": 3, \"N_HEADS\": \"x\",\n  \"mask\": null,\"any\" :\t[1], \"more\": {\"n_heads\": []}}\n"
	var c config
	places, err := File{"f", []byte(text)}.Object(&c)
	if err != nil || c.Heads != 3 || c.Mask != nil || c.Any == nil {
		t.Errorf("got %+v, %v", c, err)
	}
	for name, value := range map[string]string{"n_heads": "3,", "N_HEADS": `"x"`, "mask": "null", "any": "[1]", "more": "{"} {
		if at, ok := places[name]; !ok || !strings.HasPrefix(text[at:], value) {
			t.Errorf("%s is at %d", name, at)
		}
	}
}

// TestErrors: every error gives file, line and column, and none has Go's words.
func TestErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "f:1:1: is empty, want JSON"},
		{" \n ", "f:1:1: is empty, want JSON"},
		{"[]", "f:1:1: the file is an array, want an object"},
		{" null", "f:1:2: the file is null, want an object"},
		{"\ufeff{}", "f:1:1: starts with a byte order mark, want UTF-8 without one"},
		{"{\n\"a\": \"ä\xff\"}", "f:2:8: byte 0xff is not valid UTF-8"},
		{"{\"a\": 1", "f:1:8: ends in the middle of a value"},
		{"{\"a\": \"x", "f:1:9: ends in the middle of a value"},
		{"{\n} x", "f:2:3: 'x' follows the end of the value, want nothing after it"},
		{"{} {}", "f:1:4: '{' follows the end of the value, want nothing after it"},
		{"{\"ä\": 1,}", "f:1:9: invalid character '}'"},
		{`{"theta": NaN}`, "f:1:11: NaN is no number in JSON"},
		{`{"theta": Infinity}`, "f:1:11: Infinity is no number in JSON"},
		{`{"theta": -Infinity}`, "f:1:11: -Infinity is no number in JSON"},
		{"{\n\n  \"n_heads\": \"32\"\n}", `f:3:14: n_heads is "32", want a whole number`},
		{`{"ä":0,"n_heads": 1.5}`, "f:1:19: n_heads is 1.5, want a whole number"},
		{`{"n_heads": 99999999999999999999}`, "f:1:13: n_heads is 99999999999999999999, want a whole number"},
		{`{"n_heads": null}`, "f:1:13: n_heads is null, want a whole number"},
		{`{"n_heads": {"a": 1}}`, "f:1:13: n_heads is an object, want a whole number"},
		{`{"mask": 2147483648}`, "f:1:10: mask is 2147483648, want a whole number of at most 2147483647"},
		{`{"theta": 1e999}`, "f:1:11: theta is 1e999, want a number of at most 1.8e308"},
		{`{"theta": true}`, "f:1:11: theta is true, want a number"},
		{`{"rope": 1}`, "f:1:10: rope is 1, want true or false"},
		{`{"type": ["a"]}`, "f:1:10: type is an array, want a string"},
		{`{"list": "a"}`, `f:1:10: list is "a", want an array`},
		{`{"list": ["a", 7]}`, "f:1:16: list is 7, want a string"},
		{"{\"nested\": {\n\"A\": \"x\"}}", `f:2:6: nested.A is "x", want a whole number`},
		{`{"nested": 1}`, "f:1:12: nested is 1, want an object"},
		{"{\"n_heads\": 1,\n \"x\": 1, \"n_heads\": 1}", "f:2:18: n_heads comes twice, first in line 1"},
		{"{\"x\": 1,\n \"x\": 1}", "f:2:4: x comes twice, first in line 1"},
		{`{"type": ` + strings.Repeat("[", 20000), "f:1:"},
		{`{"n_heads": "` + strings.Repeat("ä", 1000) + `"}`, `n_heads is "` + strings.Repeat("ä", 29) + "..., want"},
	} {
		_, err := File{"f", []byte(c.text)}.Object(new(config))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("%.50q: error %v, want %q", c.text, err, c.want)
			continue
		}
		for _, word := range []string{"Go ", "struct", "unmarshal", "json:", "\n"} {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%.50q: error %q has %q", c.text, err, word)
			}
		}
	}
}

func TestUnmarshal(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"{\"list\": [\"a\",\n 7]}", "f:2:2: list is 7, want a string"},
		{"{\"list\": [\"a\\\"\", {}]}", "f:1:18: list is an object, want a string"},
		{"7", "f:1:1: the value is 7, want an object"},
		{"{} 1", "f:1:4: '1' follows the end"},
	} {
		var v config
		if err := (File{"f", []byte(c.text)}).Unmarshal(&v); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.text, err, c.want)
		}
	}
}

// FuzzObject: what Object accepts, package json reads the same; errors are one line
// that starts with a place inside the file.
func FuzzObject(f *testing.F) {
	for _, text := range []string{
		`{"n_heads": 3, "mask": null}`, `{"n_heads": "3"}`, `{"theta": NaN}`, `{"a": 1, "a": 2}`, "\ufeff{}", `{"nested": {"A": 1}}`,
		`{"list": ["\"", "\\"], "any": {"x": [1, 2]}}`, `{"type": "` + "\u2028" + `"}`, `{"\u0061": 1, "a": 2}`, "[", `{"theta":1e999}`,
	} {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"": 1e700}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var got config
		places, err := File{"f", text}.Object(&got)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") || strings.Contains(err.Error(), "\n") || !utf8.ValidString(err.Error()) {
				t.Fatalf("error %q", err)
			}
			return
		}
		decode := func(text []byte, v any) error {
			dec := json.NewDecoder(bytes.NewReader(text))
			dec.UseNumber() // members that no field takes may be beyond float64
			return dec.Decode(v)
		}
		var all map[string]any
		if err := decode(text, &all); err != nil {
			t.Fatalf("accepted %q: %v", text, err)
		}
		if len(all) != len(places) {
			t.Fatalf("%d members, want %d", len(places), len(all))
		}
		for name, at := range places {
			var v any
			if err := decode(text[at:], &v); err != nil || !reflect.DeepEqual(v, all[name]) {
				t.Fatalf("%q at %d is %v (%v), want %v", name, at, v, err, all[name])
			}
		}
	})
}
