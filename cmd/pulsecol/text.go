package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// printJSON writes v as one line.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// listed returns ids separated by commas, as flags take them.
func listed(ids []int32) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(id)))
	}
	return b.String()
}

// render returns the text of ids with mask in place of every mask token. Without
// a tokenizer it lists the ids.
func render(m *openModel, ids []int32, mask string) string {
	var b strings.Builder
	for maskID := m.config().MaskID; len(ids) > 0; {
		n := 0
		for n < len(ids) && ids[n] != maskID {
			n++
		}
		text, err := m.Decode(ids[:n])
		if err != nil { // no tokenizer, or an id that it lacks
			text = " " + strings.ReplaceAll(listed(ids[:n]), ",", " ") + " "
		}
		b.WriteString(text)
		if ids = ids[n:]; len(ids) > 0 {
			b.WriteString(mask)
			ids = ids[1:]
		}
	}
	return b.String()
}

// elided returns the end of a long text.
func elided(text string) string {
	const most = 240
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return fmt.Sprintf("[%d characters] ...%s", len(runes)-most, string(runes[len(runes)-most:]))
}

// seconds formats a time with two or three digits.
func seconds(s float64) string {
	switch {
	case s < 1:
		return fmt.Sprintf("%.0f ms", 1000*s)
	case s < 10:
		return fmt.Sprintf("%.1f s", s)
	case s < 120:
		return fmt.Sprintf("%.0f s", s)
	}
	return fmt.Sprintf("%d min %02d s", int(s)/60, int(s)%60)
}

// byteSize formats a size with a unit.
func byteSize(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	x, u := float64(n), 0
	for ; x >= 1024 && u < len(units)-1; u++ {
		x /= 1024
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", x, units[u])
}
