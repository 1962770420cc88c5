// Package procgroup joins the processes of a run, one for each GPU or host, into a group: ranks
// from the environment of a launcher, a rendezvous at rank 0, an id that all share, life signs, and
// collectives over TCP. A rank that dies, hangs or fails ends the group in all others within
// seconds, with an error that names it.
//
// A process proves that it has the job's token; what they send is not encrypted.
package procgroup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// Options are how a group forms and ends. Zero values are defaults.
type Options struct {
	Version string                    // of the program; the same in all processes
	ID      func() ([128]byte, error) // makes the id that all ranks share, called in rank 0; default: random
	Timeout time.Duration             // for all ranks to come; default: 2 minutes
	Silence time.Duration             // without a sign of life until a rank counts as hung; default: 5 s
	// Abort is called if the group has failed and Close was not called in the two seconds after: the
	// process may hang in a call that no context ends. nil: nothing is called.
	Abort func(error)
}

func (o Options) withDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	if o.Silence == 0 {
		o.Silence = 5 * time.Second
	}
	if o.ID == nil {
		o.ID = func() (id [128]byte, err error) {
			for i := 0; i < len(id); i += 32 {
				part := newNonce()
				copy(id[i:], part[:])
			}
			return id, nil
		}
	}
	return o
}

// abortAfter is the time from a failure to Options.Abort.
const abortAfter = 2 * time.Second

// Group is this process's membership of a group. Its methods may be called by several
// goroutines.
type Group struct {
	place   Place
	options Options
	self    hello
	ctx     context.Context // ends with the group; its cause names the rank that failed
	end     context.CancelCauseFunc
	id      [128]byte

	listener net.Listener // of rank 0 for processes, nil in others
	ring     *ring
	ready    chan welcome // of a process other than rank 0

	mu       sync.Mutex
	links    map[int]*link // to other ranks: all in rank 0, that to rank 0 in others
	peers    map[int]hello
	left     map[int]bool // ranks that have ended their work
	failure  error        // how the group has failed
	closing  bool
	waiting  map[net.Conn]bool // in rank 0: of processes that are in no group yet
	watchers sync.WaitGroup    // goroutines that read links
	pulse    pulse
	allLeft  chan struct{} // closed when left has all other ranks
}

// Join joins the group at a place and returns when all ranks are there. The group ends with ctx.
func Join(ctx context.Context, p Place, o Options) (_ *Group, err error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "an unnamed host"
	}
	g := &Group{
		place: p, options: o.withDefaults(),
		self: hello{
			Magic: magic, Protocol: protocol, Rank: uint32(p.Rank), Size: uint32(p.Size), Process: uint32(os.Getpid()),
			Version: newText(o.Version), Host: newText(host), Nonce: newNonce(),
		},
		links: map[int]*link{}, peers: map[int]hello{}, left: map[int]bool{}, waiting: map[net.Conn]bool{},
		ready: make(chan welcome, 1), allLeft: make(chan struct{}),
	}
	g.ctx, g.end = context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			g.Close(err)
		}
	}()
	g.ring = &ring{group: g}
	if p.Size == 1 {
		g.id, err = g.options.ID()
		return g, err
	}
	if g.self.RingPort, err = g.ring.listen(p.Address); err != nil {
		return nil, err
	}
	g.pulse.start(g)
	if p.Rank == 0 {
		err = g.gather()
	} else {
		err = g.enter()
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

// validate reports a place that is in no group.
func (p Place) validate() error {
	switch {
	case p.Size < 1 || p.Size > MaxSize:
		return fmt.Errorf("a group of %d processes; want 1 to %d", p.Size, MaxSize)
	case p.Rank < 0 || p.Rank >= p.Size:
		return fmt.Errorf("rank %d in a group of %d; want 0 to %d", p.Rank, p.Size, p.Size-1)
	case p.Size == 1:
		return nil
	}
	if _, _, err := net.SplitHostPort(p.Address); err != nil {
		return fmt.Errorf("address of rank 0: %w", err)
	}
	return nil
}

// Rank is the number of this process, from 0.
func (g *Group) Rank() int { return g.place.Rank }

// Size is the number of processes.
func (g *Group) Size() int { return g.place.Size }

// LocalRank is the number of this process among those of its host.
func (g *Group) LocalRank() int { return g.place.LocalRank }

// ID is the id that rank 0 has made, for libraries that form groups of their own.
func (g *Group) ID() [128]byte { return g.id }

// Context ends with the group. Its cause is the error that names the rank that failed.
func (g *Group) Context() context.Context { return g.ctx }

// cause is why the group has ended: its failure, or the end of Join's context; nil if it has not.
func (g *Group) cause() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failure != nil {
		return g.failure
	}
	return g.ctx.Err()
}

// errLeft is the cause of the context of a group that has ended well.
var errLeft = errors.New("the group has ended")

// Close ends the membership. With an error the others fail with its text; without one rank 0 waits
// until all others have ended theirs. It returns err, or how the group has failed before.
func (g *Group) Close(err error) error {
	g.mu.Lock()
	if g.closing {
		g.mu.Unlock()
		return err
	}
	g.closing = true
	g.mu.Unlock()
	switch cause := g.cause(); {
	case cause != nil:
		g.tell(frameFail, cause)
		err = cause
	case err != nil:
		g.fail(g.place.Rank, err)
	case g.place.Rank > 0:
		g.tell(frameLeave, nil)
	case g.place.Size > 1:
		select {
		case <-g.allLeft:
		case <-g.ctx.Done():
			err = g.cause()
			g.tell(frameFail, err)
		}
	}
	g.end(errLeft)
	g.ring.close()
	g.hangUp()
	return err
}

// hangUp closes all links after the other sides had time to read what was sent.
func (g *Group) hangUp() {
	if g.listener != nil {
		g.listener.Close()
	}
	g.mu.Lock()
	links := make([]*link, 0, len(g.links))
	for _, l := range g.links {
		links = append(links, l)
	}
	g.mu.Unlock()
	for _, l := range links {
		l.closeWrite()
	}
	read := make(chan struct{})
	go func() {
		g.watchers.Wait()
		close(read)
	}()
	select {
	case <-read:
	case <-time.After(time.Second):
	}
	for _, l := range links {
		l.Close()
	}
	g.mu.Lock()
	for conn := range g.waiting {
		conn.Close()
	}
	g.mu.Unlock()
	<-read
	g.pulse.stop()
}
