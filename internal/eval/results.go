package eval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Header is the first line of a results file. Model and sampler hold for every record; the
// other fields are for readers.
type Header struct {
	Format  int               `json:"pulsecol_eval"` // 2
	Type    string            `json:"model_type"`
	Model   string            `json:"model_sha256"` // of configuration, tokenizer and weights
	Sampler map[string]string `json:"sampler"`      // options that differ from the model's own

	Host    string `json:"host"`
	Version string `json:"version"`
	Created string `json:"created"`
}

// format is the version of the file that this package reads and writes. Records of
// format 1 have no hashes of data and exemplars.
const format = 2

// ErrResults is wrapped by every error about the content of a results file.
var ErrResults = errors.New("results file")

// Results is a results file: JSON lines, a header and then a record for each
// answered sample. It is only ever appended to, a whole line at a time.
//
// Several evaluations may use a file at the same time. Each opens and locks it for
// every record, reads the records that others have added, and adds its own unless the
// sample has a record by then. A process that is killed while it writes leaves a
// line without an end, which the next one removes. The lock is flock on Unix, which
// Linux carries over NFS to other machines, and LockFileEx on Windows, where other
// programs cannot read the file for the moment of a write. A file system without
// locks is an error.
type Results struct {
	Dropped int // bytes of a line that was cut off, removed when the file was opened

	path     string
	header   Header
	readOnly bool        // the file stays as it is
	mu       sync.Mutex  // over all that follows; the lock of the file is one between processes
	file     os.FileInfo // nil before the first use
	end      int64       // of the part that was read
	lines    int         // read
	records  map[Job]Record
}

// OpenResults opens the file at path for an evaluation under h, or creates it. An
// incomplete last line, which a killed process may leave, is removed if it begins like a
// line of this package. Any other broken line, a file of another kind and a file with
// another header are errors that wrap ErrResults; the file is then not changed.
func OpenResults(path string, h Header) (*Results, error) {
	h.Format = format
	r := &Results{path: path, header: h, records: map[Job]Record{}}
	if err := r.checkRegular(); err != nil {
		return nil, err
	}
	err := r.locked(os.O_CREATE, func(f *lockedfile.File) error {
		if r.lines > 0 {
			return nil
		}
		return r.write(f, h)
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// checkRegular reports a path that is there and not that of a file. A pipe would never open.
func (r *Results) checkRegular() error {
	if info, err := os.Stat(r.path); err == nil && !info.Mode().IsRegular() {
		return r.errorf("is not a regular file")
	}
	return nil
}

// Len is the number of different samples with a record, as far as the file was read.
func (r *Results) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.records)
}

// Find returns the record of a job, which another evaluation may have added since
// the file was opened.
func (r *Results) Find(j Job) (rec Record, ok bool, err error) {
	err = r.locked(0, func(*lockedfile.File) error {
		rec, ok = r.records[j]
		return nil
	})
	return rec, ok, err
}

// Append adds a record, unless the file has one of the same job, and returns the record in
// the file. After an error the file has no part of rec.
func (r *Results) Append(rec Record) (Record, error) {
	err := r.locked(0, func(f *lockedfile.File) error {
		if have, ok := r.records[rec.Job]; ok {
			rec = have
			return nil
		}
		if err := r.write(f, rec); err != nil {
			return err
		}
		r.records[rec.Job] = rec
		return nil
	})
	return rec, err
}

// locked calls use while no other evaluation uses the file, of which it has read
// everything.
func (r *Results) locked(flag int, use func(*lockedfile.File) error) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := lockedfile.OpenFile(r.path, os.O_RDWR|flag, 0o666)
	if err != nil {
		return r.lockError(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if r.file == nil {
		r.file = info
	}
	if !os.SameFile(r.file, info) || info.Size() < r.end {
		return r.errorf("was replaced or cut while in use")
	}
	if err := r.read(f, info.Size()); err != nil {
		return err
	}
	return use(f)
}

// lockError explains the error of opening the file with a lock.
func (r *Results) lockError(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) && strings.HasSuffix(at.Op, "Lock") {
		return r.errorf("its file system has no locks, which evaluations that share a file need (%w); name a file on another one", at.Err)
	}
	return err
}

// read reads the lines from r.end on. It removes a last one without an end, unless the file is
// only read.
func (r *Results) read(f *lockedfile.File, size int64) error {
	lines := bufio.NewReader(io.NewSectionReader(f, r.end, size-r.end))
	for {
		line, err := readLine(lines)
		if err == io.EOF {
			return r.drop(f, line)
		}
		if err == nil {
			err = r.parse(line)
		}
		if err != nil {
			return err
		}
		r.end += int64(len(line))
		r.lines++
	}
}

// drop counts a last line without an end, and removes it unless the file is only read.
func (r *Results) drop(f *lockedfile.File, line []byte) error {
	if len(line) == 0 {
		return nil
	}
	if start := r.start(); !bytes.HasPrefix(line, []byte(start)) && !strings.HasPrefix(start, string(line)) {
		return r.badLine(1, r.notOurs())
	}
	r.Dropped += len(line)
	if r.readOnly {
		return nil
	}
	return f.Truncate(r.end)
}

// write adds a line.
func (r *Results) write(f *lockedfile.File, v any) error {
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	if _, err := f.WriteAt(line.Bytes(), r.end); err != nil {
		_ = f.Truncate(r.end) // the next evaluation removes what this cannot
		return err
	}
	r.end += int64(line.Len())
	r.lines++
	return nil
}
