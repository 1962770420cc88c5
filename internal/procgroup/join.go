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
	"strconv"
	"strings"
	"time"
)

// handshake is the time that a process has to say what it is.
const handshake = 10 * time.Second

// enter joins the group of rank 0.
func (g *Group) enter() error {
	deadline := time.Now().Add(g.options.Timeout)
	conn, err := g.dial(deadline)
	if err != nil {
		return err
	}
	l := &link{Conn: conn}
	if err := conn.SetDeadline(time.Now().Add(handshake)); err != nil {
		conn.Close()
		return err
	}
	root, err := g.introduce(l)
	if err != nil {
		conn.Close()
		return fmt.Errorf("rank 0 at %s: %w", g.place.Address, err)
	}
	g.adopt(0, root, l)
	select {
	case w := <-g.ready:
		g.id = w.ID
		g.ring.set(w.Key, strings.TrimRight(string(w.Next[:]), "\x00"))
		return nil
	case <-g.ctx.Done():
		return g.cause()
	}
}

// dial connects to rank 0, which may start later than this process.
func (g *Group) dial(deadline time.Time) (net.Conn, error) {
	ctx, cancel := context.WithDeadline(g.ctx, deadline)
	defer cancel()
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", g.place.Address)
		if err == nil {
			return conn, nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		if g.ctx.Err() != nil {
			return nil, g.cause()
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("rank 0 did not answer at %s in %v: %w", g.place.Address, g.options.Timeout, err)
		}
	}
}

// introduce says what this process is and returns what rank 0 is.
func (g *Group) introduce(l *link) (hello, error) {
	mine := encode(g.self)
	if _, err := l.Write(mine); err != nil {
		return hello{}, fmt.Errorf("is no rank 0 of a group: %w", err)
	}
	var challenge [32]byte
	if _, err := io.ReadFull(l, challenge[:]); err != nil {
		return hello{}, fmt.Errorf("is no rank 0 of a group: %w", err)
	}
	proof := prove([]byte(g.place.Token), "process", mine, challenge[:])
	if _, err := l.Write(proof[:]); err != nil {
		return hello{}, fmt.Errorf("is no rank 0 of a group: %w", err)
	}
	f, err := readFrame(l)
	if err != nil {
		return hello{}, fmt.Errorf("is no rank 0 of a group: %w", err)
	}
	var a accept
	switch {
	case f.kind == frameRefuse:
		return hello{}, fmt.Errorf("refused rank %d: %s", g.place.Rank, f.text())
	case f.kind != frameAccept:
		return hello{}, fmt.Errorf("sent a %w", errMalformed)
	}
	if err := f.decode(&a); err != nil {
		return hello{}, err
	}
	want := prove([]byte(g.place.Token), "rank 0", mine, challenge[:], encode(a.Hello))
	if !hmac.Equal(a.Proof[:], want[:]) {
		return hello{}, fmt.Errorf("has another %s", TokenVariable)
	}
	return a.Hello, nil
}

// adopt keeps the link to a rank, and reads it from now on.
func (g *Group) adopt(rank int, h hello, l *link) {
	g.mu.Lock()
	g.links[rank], g.peers[rank] = l, h
	g.mu.Unlock()
	g.watchers.Go(func() { g.watch(rank, l) })
}

// arrival is a process that has proved to be of the job.
type arrival struct {
	hello hello
	link  *link
}

// gather waits in rank 0 for all other ranks.
func (g *Group) gather() (err error) {
	if g.id, err = g.options.ID(); err != nil {
		return err
	}
	if g.listener, err = net.Listen("tcp", listenAddress(g.place.Address)); err != nil {
		return fmt.Errorf("rank 0 cannot listen for the others: %w; %s names another port", err, masterPort)
	}
	arrivals := make(chan arrival)
	refused := make(chan error, 1)
	g.watchers.Go(func() { g.accept(arrivals, refused) })
	timeout := time.NewTimer(g.options.Timeout)
	defer timeout.Stop()
	var last error // of a refused connection
	for len(g.links) < g.place.Size-1 {
		select {
		case a := <-arrivals:
			if err := g.admit(a); err != nil {
				return err
			}
		case last = <-refused:
		case <-g.ctx.Done():
			return g.cause()
		case <-timeout.C:
			return g.missing(last)
		}
	}
	if err := g.welcomeAll(); err != nil {
		return err
	}
	g.watchers.Go(func() { // processes that come later
		for {
			select {
			case a := <-arrivals:
				g.watchers.Go(func() {
					g.dismiss(a.link, fmt.Sprintf("refused rank %d: the group of %d is complete", a.hello.Rank, g.place.Size))
				})
			case <-refused:
			case <-g.ctx.Done():
				return
			}
		}
	})
	return nil
}

// listenAddress returns where rank 0 listens: at all addresses of the host, whose name may stand for
// another one on this host than on others, unless the address is one that others cannot reach.
func listenAddress(address string) string {
	host, port, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return address
	}
	return net.JoinHostPort("", port)
}

// maxHandshakes bounds the connections that have not proved anything.
const maxHandshakes = 256

// accept takes connections until the listener ends.
func (g *Group) accept(arrivals chan<- arrival, refused chan<- error) {
	slots := make(chan struct{}, maxHandshakes)
	for {
		conn, err := g.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // too many open files
			time.Sleep(50 * time.Millisecond)
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-g.ctx.Done():
			conn.Close()
			return
		}
		g.watchers.Go(func() {
			defer func() { <-slots }()
			defer g.await(conn)()
			l := &link{Conn: conn}
			h, err := g.examine(l)
			if err != nil {
				g.refuse(l, err)
				select {
				case refused <- fmt.Errorf("%v: %w", conn.RemoteAddr(), err):
				default:
				}
				return
			}
			select {
			case arrivals <- arrival{h, l}:
			case <-g.ctx.Done():
				_, why := blame(0, g.cause())
				g.dismiss(l, why)
			}
		})
	}
}

// await notes a connection that is in no group yet, so that it ends with the group. It returns
// what forgets it.
func (g *Group) await(conn net.Conn) func() {
	g.mu.Lock()
	g.waiting[conn] = true
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		delete(g.waiting, conn)
		g.mu.Unlock()
	}
}

// refuse tells a process why it is not of the group.
func (g *Group) refuse(l *link, why error) {
	_ = l.send(time.Second, frameRefuse, 0, []byte(why.Error())) // it may be no process of ours
	l.finish()
}

// dismiss tells a process of the job how rank 0 has failed.
func (g *Group) dismiss(l *link, text string) {
	_ = l.send(time.Second, frameFail, 0, []byte(text)) // it may have ended
	l.finish()
}

// examine lets a process say and prove what it is. An error is one of the connection: it ends
// nothing but that.
func (g *Group) examine(l *link) (h hello, err error) {
	if err := l.SetDeadline(time.Now().Add(handshake)); err != nil {
		return h, err
	}
	data := make([]byte, binary.Size(h))
	if _, err := io.ReadFull(l, data); err != nil {
		return h, fmt.Errorf("no hello of a process: %w", err)
	}
	if err := binary.Read(bytes.NewReader(data), binary.LittleEndian, &h); err != nil {
		return h, err
	}
	if h.Magic != magic {
		return h, errors.New("no hello of a process")
	}
	if h.Protocol != protocol {
		return h, fmt.Errorf("protocol %d (pulsecol %s), rank 0 has %d (pulsecol %s)", h.Protocol, h.Version, protocol, g.self.Version)
	}
	challenge := newNonce()
	if _, err := l.Write(challenge[:]); err != nil {
		return h, err
	}
	var proof [32]byte
	if _, err := io.ReadFull(l, proof[:]); err != nil {
		return h, fmt.Errorf("no proof of the job's token: %w", err)
	}
	if want := prove([]byte(g.place.Token), "process", data, challenge[:]); !hmac.Equal(proof[:], want[:]) {
		return h, fmt.Errorf("another %s than rank 0 has", TokenVariable)
	}
	a := accept{Hello: g.self}
	a.Proof = prove([]byte(g.place.Token), "rank 0", data, challenge[:], encode(a.Hello))
	// A process of the job that does not fit fails the group, which tells it why.
	return h, l.send(handshake, frameAccept, 0, encode(a))
}

// admit takes a process of the job into the group, or says why the group cannot form.
func (g *Group) admit(a arrival) error {
	h := a.hello
	rank := int(h.Rank)
	var err error
	g.mu.Lock()
	other, twice := g.peers[rank]
	g.mu.Unlock()
	switch {
	case rank == 0:
		err = fmt.Errorf("two processes say that they are rank 0: %s and %s", g.self.who(), h.who())
	case int(h.Size) != g.place.Size:
		err = fmt.Errorf("rank %d (%s) is in a group of %d, rank 0 (%s) in one of %d", rank, h.who(), h.Size, g.self.who(), g.place.Size)
	case rank >= g.place.Size:
		err = fmt.Errorf("rank %d (%s) in a group of %d", rank, h.who(), g.place.Size)
	case h.Version != g.self.Version:
		err = fmt.Errorf("rank %d (%s) runs pulsecol %s, rank 0 (%s) %s", rank, h.who(), h.Version, g.self.who(), g.self.Version)
	case twice:
		err = fmt.Errorf("two processes say that they are rank %d: %s and %s", rank, other.who(), h.who())
	}
	if err != nil {
		g.watchers.Go(func() { g.dismiss(a.link, "failed: "+err.Error()) })
		return err
	}
	g.adopt(rank, h, a.link)
	return nil
}

// missing is the error for ranks that have not come in time.
func (g *Group) missing(last error) error {
	var ranks []string
	for r := 1; r < g.place.Size; r++ {
		if g.links[r] == nil {
			ranks = append(ranks, strconv.Itoa(r))
		}
	}
	const most = 8
	if len(ranks) > most {
		ranks = append(ranks[:most], fmt.Sprintf("%d more", len(ranks)-most))
	}
	noun := "rank"
	if len(ranks) > 1 {
		noun = "ranks"
	}
	err := fmt.Errorf("%s %s of %d did not come to %s in %v; every rank is started by the launcher (srun under Slurm)",
		noun, strings.Join(ranks, ", "), g.place.Size, g.place.Address, g.options.Timeout)
	if last != nil {
		err = fmt.Errorf("%w; the last connection that was refused, from %w", err, last)
	}
	return err
}

// welcomeAll tells all ranks that the group is complete, and the next rank of each.
func (g *Group) welcomeAll() error {
	key := newNonce()
	for r := range g.place.Size {
		next := g.ringAddress((r+1)%g.place.Size, r)
		if r == 0 {
			g.ring.set(key, next)
			continue
		}
		w := welcome{ID: g.id, Key: key}
		copy(w.Next[:], next)
		if err := g.links[r].send(g.options.Silence, frameWelcome, 0, encode(w)); err != nil {
			g.fail(r, fmt.Errorf("(%s) has ended: %w", g.who(r), err))
			return g.cause()
		}
	}
	return nil
}

// ringAddress returns where rank to listens, as rank from reaches it. Rank 0 knows the host of a
// rank by its link. A rank on rank 0's own host is at the address by which others reach rank 0.
func (g *Group) ringAddress(to, from int) string {
	host := func(a net.Addr) string {
		h, _, _ := net.SplitHostPort(a.String())
		return h
	}
	port := g.self.RingPort
	if to != 0 {
		port = g.peers[to].RingPort
	}
	at := ""
	switch {
	case to != 0 && host(g.links[to].RemoteAddr()) != host(g.links[to].LocalAddr()):
		at = host(g.links[to].RemoteAddr())
	case from != 0:
		at = host(g.links[from].LocalAddr())
	default: // both are on this host
		at = host(g.links[to].RemoteAddr())
	}
	return net.JoinHostPort(at, strconv.Itoa(int(port)))
}
