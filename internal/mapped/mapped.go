// Package mapped maps files into memory and makes errors of the faults that reading
// them may cause: where a file is cut short while it is mapped, or its disk or network
// fails, the processor finds no memory at an address, which by default ends a Go
// program.
package mapped

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/infile"
)

// ErrLost is the sentinel of errors about files that changed or could not be read while
// they were open.
var ErrLost = errors.New("a mapped file was lost while in use")

// File is the content of a file, mapped where the system can and else in memory.
type File struct {
	Data []byte // read-only

	path    string
	file    *os.File // nil if nothing is mapped
	size    int64
	changed time.Time
}

// files are those that are mapped.
var files struct {
	sync.Mutex
	open map[*File]bool
}

// register makes Fault find f.
func (f *File) register() {
	files.Lock()
	defer files.Unlock()
	if files.open == nil {
		files.open = map[*File]bool{}
	}
	files.open[f] = true
}

func (f *File) unregister() {
	files.Lock()
	defer files.Unlock()
	delete(files.open, f)
}

// Intact reports a mapped file that has been cut short or written to since it was
// opened. Bytes cut off the last page of memory read as zeros and cause no fault.
func (f *File) Intact() error {
	if f.file == nil {
		return nil
	}
	info, err := f.file.Stat()
	switch {
	case err != nil:
		return lost("%s: %v", f.path, err)
	case info.Size() < f.size:
		return lost("%s was cut short while in use: from %s to %s", f.path, infile.Size(f.size), infile.Size(info.Size()))
	case info.Size() != f.size || !info.ModTime().Equal(f.changed):
		return lost("%s was written to while in use", f.path)
	}
	return nil
}

// Error says what happened to a file. It wraps ErrLost.
type Error struct{ text string }

func (e *Error) Error() string { return e.text }
func (*Error) Unwrap() error   { return ErrLost }

func lost(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// Fault returns the error that a recovered panic stands for: what happened to the mapped
// file that the goroutine could not read. It is nil if the panic is no fault in a mapped
// file.
func Fault(recovered any) error {
	fault, ok := recovered.(runtime.Error)
	if !ok {
		return nil
	}
	at, known := uintptr(0), false
	if f, ok := fault.(interface{ Addr() uintptr }); ok {
		at, known = f.Addr(), true
	} else if !strings.Contains(fault.Error(), "invalid memory address") {
		return nil // of an index, a division, ...
	}
	files.Lock()
	defer files.Unlock()
	for f := range files.open {
		offset := at - uintptr(unsafe.Pointer(&f.Data[0]))
		here := known && offset < uintptr(len(f.Data))
		if !here && known {
			continue
		}
		// Emulators do not give the address: then it is a file that has changed.
		if err := f.Intact(); err != nil {
			return err
		}
		if here {
			return lost("%s cannot be read at byte %d: its disk or network failed", f.path, offset)
		}
	}
	return nil
}

// Guard runs f, which reads mapped files, and returns the error of a fault in one.
func Guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if err = Fault(r); err == nil {
				panic(r)
			}
		}
	}()
	return f()
}
