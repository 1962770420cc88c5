package eval

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// writerFile names the results file of a process that is a writer.
const writerFile = "PULSECOL_TEST_WRITER"

// writerRecords are the records that writers add: few, so that writers add the same ones,
// and long, so that a kill may interrupt a write.
func writerRecords() []Record {
	var records []Record
	for _, j := range jobsOf(100, full, pulse) {
		records = append(records, Record{Job: j, Asked: asked, Output: strings.Repeat(fmt.Sprint(j.Index, " "), 2000)})
	}
	return records
}

// TestWriter is the program of the other tests' processes: it prints that the file is open,
// waits for a line, and adds all records in an order of its own.
func TestWriter(t *testing.T) {
	path, ok := os.LookupEnv(writerFile)
	if !ok {
		t.Skip("is for the processes of other tests")
	}
	r := openResults(t, path)
	fmt.Println("open")
	_, _ = fmt.Scanln()
	records := writerRecords()
	for _, i := range rand.Perm(len(records)) {
		if _, err := r.Append(records[i]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// writer is a process that adds records to a file.
type writer struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
}

// startWriters starts n processes that begin to write at the same time.
func startWriters(t *testing.T, n int, path string) []*writer {
	t.Helper()
	var writers []*writer
	for range n {
		w := &writer{Cmd: exec.Command(os.Args[0], "-test.run=^TestWriter$")}
		w.Env = append(os.Environ(), writerFile+"="+path)
		w.Stderr = &w.stderr
		out, err := w.StdoutPipe()
		if err == nil {
			w.stdin, err = w.StdinPipe()
		}
		if err == nil {
			err = w.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscanln(out, new(string)); err != nil {
			t.Fatal(err)
		}
		writers = append(writers, w)
	}
	for _, w := range writers {
		if err := w.stdin.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return writers
}

// checkWritten: every line is whole, every record is there once.
func checkWritten(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := openResults(t, path)
	records := writerRecords()
	if lines := bytes.Count(data, []byte("\n")); lines != 1+len(records) || r.Len() != len(records) || r.Dropped != 0 {
		t.Errorf("%d lines, %d records, %d bytes dropped; want %d records", lines, r.Len(), r.Dropped, len(records))
	}
	for _, rec := range records {
		if got := r.records[rec.Job]; got.Output != rec.Output {
			t.Errorf("%v has another output", rec.Job)
		}
	}
}

// TestTwoWriters: processes that add the same records to a file, which does not
// exist at first, keep all of them, none twice.
func TestTwoWriters(t *testing.T) {
	path := t.TempDir() + "/results.jsonl"
	for _, w := range startWriters(t, 3, path) {
		if err := w.Wait(); err != nil {
			t.Errorf("%v: %s", err, w.stderr.String())
		}
	}
	checkWritten(t, path)
}

// TestKilledWriter: a process that is killed while it writes loses at most one line, for
// processes that have the file open and for later ones.
func TestKilledWriter(t *testing.T) {
	path := resultsFile(t, nil)
	open := openResults(t, path)
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for range 5 {
		before := size()
		w := startWriters(t, 1, path)[0]
		for range 1000 { // until it has added something
			if size() > before {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err := w.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = w.Wait() // says that it was killed
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if data, _ := os.ReadFile(path); bytes.HasSuffix(data, []byte("\n")) { // a kill in the middle of a write is rare
			if _, err := f.WriteString(`{"task":"a","method":"fu`); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, rec := range writerRecords() {
		if _, err := open.Append(rec); err != nil {
			t.Fatal(err)
		}
	}
	checkWritten(t, path)
}
