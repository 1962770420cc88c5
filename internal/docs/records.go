package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
)

// record is a measurement: what was measured, with which command, on which machine ("cpu" or
// "gpu") and date.
type record map[string]any

// number returns a field that is a number, or 0.
func (r record) number(field string) float64 {
	x, _ := r[field].(float64)
	return x
}

// text returns a field that is a string, or "".
func (r record) text(field string) string {
	s, _ := r[field].(string)
	return s
}

// machine is where the record was measured.
func (r record) machine() string { return r.text("gpu") + r.text("cpu") }

// matches reports whether the fields of want are those of r. A field that is nil in want must
// be absent.
func (r record) matches(want record) bool {
	for field, value := range want {
		if n, ok := value.(int); ok {
			value = float64(n)
		}
		if r[field] != value {
			return false
		}
	}
	return true
}

// bench is the records of a folder, by file.
type bench map[string][]record

// readBench reads the .jsonl files of a folder: a JSON object a line.
func readBench(dir fs.FS) (*bench, error) {
	files, err := fs.Glob(dir, "*.jsonl")
	if err != nil {
		return nil, err
	}
	b := bench{}
	for _, file := range files {
		data, err := fs.ReadFile(dir, file)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(path.Base(file), ".jsonl")
		for n, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
			var r record
			if err := json.Unmarshal(line, &r); err != nil {
				return nil, fmt.Errorf("bench/%s: line %d: %w", file, n+1, err)
			}
			b[name] = append(b[name], r)
		}
	}
	return &b, nil
}

// table is a Markdown table under construction. Its first error stays.
type table struct {
	bench *bench
	rows  [][]string // the first one is the heading
	files map[string]bool
	from  map[string]map[string]bool // machines of the records, and dates
	err   error
}

// find returns the records of a file that match want.
func (t *table) find(file string, want record) []record {
	var found []record
	for _, r := range (*t.bench)[file] {
		if r.matches(want) {
			found = append(found, r)
			t.note(file, r)
		}
	}
	return found
}

// one returns the only record of a file that matches want.
func (t *table) one(file string, want record) record {
	found := t.find(file, want)
	if len(found) != 1 {
		t.fail(fmt.Errorf("bench/%s.jsonl: %d records match %v, want 1", file, len(found), want))
		return nil
	}
	return found[0]
}

func (t *table) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// note records the machine and the date of numbers in the table.
func (t *table) note(file string, r record) {
	if t.files == nil {
		t.files, t.from = map[string]bool{}, map[string]map[string]bool{}
	}
	t.files[file] = true
	if t.from[r.machine()] == nil {
		t.from[r.machine()] = map[string]bool{}
	}
	t.from[r.machine()][r.text("date")] = true
}

// add adds a row.
func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// markdown is the table with a line of its machines, dates and files, with links for a page.
func (t *table) markdown(page string) string {
	if t.rows == nil {
		return "Not measured yet.\n"
	}
	var out strings.Builder
	for i, row := range t.rows {
		fmt.Fprintf(&out, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			out.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	up := strings.Repeat("../", strings.Count(page, "/"))
	var links []string
	for _, file := range slices.Sorted(maps.Keys(t.files)) {
		links = append(links, fmt.Sprintf("[%s.jsonl](%sbench/%s.jsonl)", file, up, file))
	}
	var from []string
	for _, machine := range slices.Sorted(maps.Keys(t.from)) {
		from = append(from, machine+", "+strings.Join(slices.Sorted(maps.Keys(t.from[machine])), " and "))
	}
	fmt.Fprintf(&out, "\nMeasured on %s. Records with commands: %s.\n", strings.Join(from, "; "), strings.Join(links, ", "))
	return out.String()
}

// number formats x with three digits and separated thousands.
func number(x float64) string {
	switch {
	case x >= 100:
		s := fmt.Sprintf("%.0f", x)
		for at := len(s) - 3; at > 0; at -= 3 {
			s = s[:at] + "," + s[at:]
		}
		return s
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	case x >= 1:
		return fmt.Sprintf("%.2f", x)
	case x == 0:
		return "0"
	}
	return fmt.Sprintf("%.*f", 2-int(math.Floor(math.Log10(x))), x)
}

// times formats a/b, both in units of time, as a speed-up.
func times(a, b float64) string {
	if a/b >= 10 {
		return fmt.Sprintf("%.1fx", a/b)
	}
	return fmt.Sprintf("%.2fx", a/b)
}
