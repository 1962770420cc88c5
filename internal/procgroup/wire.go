package procgroup

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// A process connects to rank 0 and both say what they are in messages of a fixed size:
//
//	process: hello
//	rank 0:  challenge (a nonce)
//	process: proof (a hash of token, hello and nonces)
//	rank 0:  frame refuse and the end, or frame accept with a proof of its own
//
// Then both send frames: a kind, a rank, and up to maxPayload bytes.

var magic = [8]byte{'p', 'u', 'l', 's', 'e', 'c', 'o', 'l'}

// protocol is the version of what processes send.
const protocol = 1

// hello is the first message of a process.
type hello struct {
	Magic      [8]byte
	Protocol   uint32
	Rank, Size uint32
	Process    uint32
	RingPort   uint16 // at which the process listens to the rank before it
	Version    text64 // of the program
	Host       text64
	Nonce      [32]byte
}

// text64 is a short text, padded with zeros.
type text64 [64]byte

func newText(s string) (t text64) {
	copy(t[:], s)
	return t
}

// String returns the text without bytes that a terminal would obey.
func (t text64) String() string {
	s := strings.TrimRight(string(t[:]), "\x00")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// who names the process of a hello.
func (h *hello) who() string { return fmt.Sprintf("process %d on %s", h.Process, h.Host) }

// encode returns the bytes of a message of fixed size.
func encode(message any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, message); err != nil {
		panic(err) // not a message of fixed size
	}
	return b.Bytes()
}

// newNonce returns 32 random bytes.
func newNonce() (n [32]byte) {
	_, _ = rand.Read(n[:]) // never fails
	return n
}

// prove hashes parts with a key. role tells the directions apart.
func prove(key []byte, role string, parts ...[]byte) (sum [32]byte) {
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "%s %d\n", role, len(parts))
	for _, p := range parts {
		fmt.Fprintf(h, "%d\n", len(p))
		h.Write(p)
	}
	copy(sum[:], h.Sum(nil))
	return sum
}

// Kinds of frames.
const (
	frameRefuse  = iota + 1 // text why
	frameAccept             // accept
	frameBeat               // a sign of life
	frameWelcome            // welcome: all ranks are there
	frameFail               // rank, and text how it failed
	frameLeave              // the process has ended its work
)

// accept is the payload of the answer of rank 0 to a process.
type accept struct {
	Proof [32]byte
	Hello hello // of rank 0
}

// welcome is the payload that begins the work of a group.
type welcome struct {
	ID   [128]byte
	Key  [32]byte  // of connections between ranks
	Next [256]byte // the address of the next rank, padded with zeros
}

// frame is a message of a group that has formed.
type frame struct {
	kind    byte
	rank    int
	payload []byte
}

// maxPayload bounds the memory for a malformed frame.
const maxPayload = 1024

type frameHead struct {
	Kind   byte
	Rank   uint32
	Length uint16
}

// link is a connection on which both sides send frames.
type link struct {
	net.Conn
	in     *bufio.Reader // of its one reader, from the first frame on
	mu     sync.Mutex
	closed bool // nothing more is sent
}

// send sends a frame. A peer that takes nothing for the time out is an error.
func (l *link) send(timeout time.Duration, kind byte, rank int, payload []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	if len(payload) > maxPayload {
		payload = payload[:maxPayload]
	}
	data := append(encode(frameHead{kind, uint32(rank), uint16(len(payload))}), payload...)
	if err := l.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	_, err := l.Write(data)
	return err
}

// closeWrite ends the sending, so that the other side reads to an end.
func (l *link) closeWrite() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if c, ok := l.Conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite() // the connection may have ended
	}
}

// finish closes the link when the other side has read what was sent: it would not if bytes that it
// has sent were left unread.
func (l *link) finish() {
	l.closeWrite()
	_ = l.SetReadDeadline(time.Now().Add(time.Second)) // without it Close ends the reading
	_, _ = io.CopyN(io.Discard, l, 1<<16)
	l.Close()
}

// errMalformed is wrapped by errors about bytes that no process of a group sends.
var errMalformed = errors.New("malformed message")

// receive reads a frame. It waits twice: a process that did not run for some time itself finds then
// what has come meanwhile.
func (l *link) receive(timeout time.Duration) (frame, error) {
	if l.in == nil {
		l.in = bufio.NewReader(l.Conn)
	}
	for _, part := range []time.Duration{timeout * (beats - 1) / beats, timeout / beats} {
		if err := l.SetReadDeadline(time.Now().Add(part)); err != nil {
			return frame{}, err
		}
		_, err := l.in.Peek(1)
		if err == nil {
			if err := l.SetReadDeadline(time.Now().Add(timeout)); err != nil {
				return frame{}, err
			}
			return readFrame(l.in)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return frame{}, err
		}
	}
	return frame{}, os.ErrDeadlineExceeded
}

func readFrame(r io.Reader) (frame, error) {
	var head frameHead
	if err := binary.Read(r, binary.LittleEndian, &head); err != nil {
		return frame{}, err
	}
	if head.Kind < frameRefuse || head.Kind > frameLeave || head.Rank >= MaxSize || head.Length > maxPayload {
		return frame{}, fmt.Errorf("%w: kind %d, rank %d, %d bytes", errMalformed, head.Kind, head.Rank, head.Length)
	}
	f := frame{kind: head.Kind, rank: int(head.Rank), payload: make([]byte, head.Length)}
	if _, err := io.ReadFull(r, f.payload); err != nil {
		return frame{}, err
	}
	return f, nil
}

// decode reads the payload of a frame into a message of fixed size.
func (f *frame) decode(message any) error {
	if n := binary.Size(message); n != len(f.payload) {
		return fmt.Errorf("%w: %d bytes, want %d", errMalformed, len(f.payload), n)
	}
	return binary.Read(bytes.NewReader(f.payload), binary.LittleEndian, message)
}

// text returns the payload as text without bytes that a terminal would obey.
func (f *frame) text() string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0xfffd {
			return '?'
		}
		return r
	}, string(f.payload))
}
