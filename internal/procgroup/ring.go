package procgroup

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// ring is the connections from each rank to the next, and from the last to rank 0. It is made by
// the first collective: libraries that have networks of their own need none.
type ring struct {
	group    *Group
	listener net.Listener
	key      [32]byte // of all ranks
	next     string   // the address of the next rank

	mu       sync.Mutex // over a collective
	failed   error      // of an earlier collective, which left bytes in the connections
	count    uint64     // of collectives
	connMu   sync.Mutex // over the connections
	closed   bool
	to, from net.Conn
}

// listen begins to listen for the rank before this one, and returns the port.
func (r *ring) listen(master string) (uint16, error) {
	at := ":0"
	if address := listenAddress(master); !strings.HasPrefix(address, ":") { // a loopback address
		host, _, _ := net.SplitHostPort(address)
		at = net.JoinHostPort(host, "0")
	}
	var err error
	if r.listener, err = net.Listen("tcp", at); err != nil {
		return 0, fmt.Errorf("cannot listen for other ranks: %w", err)
	}
	return uint16(r.listener.Addr().(*net.TCPAddr).Port), nil
}

// set notes what rank 0 says of the ring.
func (r *ring) set(key [32]byte, next string) { r.key, r.next = key, next }

// close ends the connections, and what waits for them.
func (r *ring) close() {
	if r == nil {
		return
	}
	r.connMu.Lock()
	defer r.connMu.Unlock()
	r.closed = true
	if r.listener != nil {
		r.listener.Close()
	}
	for _, c := range []net.Conn{r.to, r.from} {
		if c != nil {
			c.Close()
		}
	}
}

// keep stores a connection, unless the ring has been closed.
func (r *ring) keep(at *net.Conn, c net.Conn) error {
	r.connMu.Lock()
	defer r.connMu.Unlock()
	if r.closed {
		c.Close()
		return net.ErrClosed
	}
	*at = c
	return nil
}

// neighbour is the first message on a connection of the ring.
type neighbour struct {
	Magic [8]byte
	Rank  uint32
	Proof [32]byte
}

func (r *ring) neighbour(rank int) neighbour {
	return neighbour{magic, uint32(rank), prove(r.key[:], "ring", []byte{byte(rank), byte(rank >> 8)})}
}

// connect makes the ring.
func (r *ring) connect() error {
	if r.to != nil {
		return nil
	}
	context.AfterFunc(r.group.ctx, r.close)
	conn, err := (&net.Dialer{Timeout: r.group.options.Silence}).DialContext(r.group.ctx, "tcp", r.next)
	if err != nil {
		return fmt.Errorf("the next rank at %s: %w", r.next, err)
	}
	if err := r.keep(&r.to, conn); err != nil {
		return err
	}
	if _, err := conn.Write(encode(r.neighbour(r.group.Rank()))); err != nil {
		return err
	}
	conn, err = r.accept()
	if err != nil {
		return err
	}
	return r.keep(&r.from, conn)
}

// accept waits for the rank before this one. Connections of others are closed.
func (r *ring) accept() (net.Conn, error) {
	defer r.listener.Close()
	size := r.group.Size()
	before := r.neighbour((r.group.Rank() + size - 1) % size)
	found := make(chan net.Conn)
	done := make(chan struct{})
	defer close(done)
	ended := make(chan error, 1)
	go func() {
		slots := make(chan struct{}, maxHandshakes)
		for {
			conn, err := r.listener.Accept()
			switch {
			case errors.Is(err, net.ErrClosed):
				ended <- err
				return
			case err != nil:
				time.Sleep(50 * time.Millisecond)
				continue
			}
			select {
			case slots <- struct{}{}:
			case <-done:
				conn.Close()
				return
			}
			go func() {
				defer func() { <-slots }()
				if !isNeighbour(conn, before) {
					conn.Close()
					return
				}
				select {
				case found <- conn:
				case <-done:
					conn.Close()
				}
			}()
		}
	}()
	select {
	case conn := <-found:
		return conn, nil
	case err := <-ended:
		return nil, err
	}
}

// isNeighbour says whether a connection begins with want.
func isNeighbour(conn net.Conn, want neighbour) bool {
	data := make([]byte, binary.Size(want))
	if conn.SetReadDeadline(time.Now().Add(handshake)) != nil {
		return false
	}
	if _, err := io.ReadFull(conn, data); err != nil {
		return false
	}
	return hmac.Equal(data, encode(want)) && conn.SetReadDeadline(time.Time{}) == nil
}

// call is a collective, which every rank sends to the next one before its data.
type call struct {
	Number uint64 // counted from 1
	Name   text64
	Length uint64 // in elements
}

func (c call) String() string {
	return fmt.Sprintf("collective %d, %s of %d values", c.Number, c.Name, c.Length)
}

// begin compares a collective with that of the rank before this one. No length is taken from
// another rank.
func (r *ring) begin(c call) error {
	if err := r.connect(); err != nil {
		return err
	}
	if _, err := r.to.Write(encode(c)); err != nil {
		return err
	}
	data := make([]byte, binary.Size(c))
	if _, err := io.ReadFull(r.from, data); err != nil {
		return err
	}
	var other call
	if err := binary.Read(bytes.NewReader(data), binary.LittleEndian, &other); err != nil {
		return err
	}
	if other != c {
		size := r.group.Size()
		return &mismatch{fmt.Errorf("this process, rank %d, is at %v, and rank %d at %v: ranks have run different graphs",
			r.group.Rank(), c, (r.group.Rank()+size-1)%size, other)}
	}
	return nil
}

// mismatch is an error that no connection is the cause of.
type mismatch struct{ error }

// run runs a collective. After an error the ring is of no use.
func (r *ring) run(c call, transfer func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil {
		return r.failed
	}
	r.count++
	c.Number = r.count
	err := r.begin(c)
	if err == nil {
		err = transfer()
	}
	if err != nil {
		r.failed = r.group.verdict(err)
	}
	return r.failed
}

// verdict returns the error that names the rank because of which a connection has ended. The
// rank at its other end may have ended only because of another one, which rank 0 knows of.
func (g *Group) verdict(err error) error {
	var m *mismatch
	if errors.As(err, &m) {
		return m.error
	}
	select {
	case <-g.ctx.Done():
		return g.cause()
	case <-time.After(g.options.Silence + 2*time.Second):
		return fmt.Errorf("connection to another rank: %w", err)
	}
}
