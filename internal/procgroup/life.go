package procgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// rankError is how a rank has failed.
type rankError struct {
	rank int
	err  error
}

func (e *rankError) Error() string { return fmt.Sprintf("rank %d %s", e.rank, e.err) }
func (e *rankError) Unwrap() error { return e.err }

// pulse sends signs of life to all links.
type pulse struct {
	mu      sync.Mutex
	last    time.Time // of the last beat
	stopped time.Time // end of the last time in which this process did not run
	gap     time.Duration
	done    chan struct{}
	ended   sync.WaitGroup
}

// beats is how many signs of life are sent in the time after which a rank counts as hung.
const beats = 5

func (p *pulse) start(g *Group) {
	p.done = make(chan struct{})
	p.last = time.Now()
	p.ended.Go(func() {
		tick := time.NewTicker(g.options.Silence / beats)
		defer tick.Stop()
		for {
			select {
			case <-p.done:
				return
			case <-tick.C:
				p.beat(g.options.Silence)
				g.tell(frameBeat, nil)
			}
		}
	})
}

func (p *pulse) stop() {
	if p.done != nil {
		close(p.done)
		p.ended.Wait()
	}
}

// beat notes that this process runs.
func (p *pulse) beat(silence time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if gap := now.Sub(p.last); gap >= hung(silence) {
		p.stopped, p.gap = now, gap
	}
	p.last = now
}

// hung is the least time without a beat after which others may count this process as hung: the
// last one may have been a beat before.
func hung(silence time.Duration) time.Duration { return silence * (beats - 1) / beats }

// paused returns how long this process itself did not run of late, if others count it as hung.
func (p *pulse) paused(silence time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gap := time.Since(p.last); gap >= hung(silence) {
		return gap
	}
	if !p.stopped.IsZero() && time.Since(p.stopped) < silence {
		return p.gap
	}
	return 0
}

// tell sends a frame on all links. Links that take nothing are left to their readers.
func (g *Group) tell(kind byte, err error) {
	rank, text := g.place.Rank, ""
	if err != nil {
		if rank, text = blame(g.place.Rank, err); rank != g.place.Rank && g.place.Rank != 0 {
			return // rank 0 has said so
		}
	}
	g.mu.Lock()
	links := map[int]*link{}
	for r, l := range g.links {
		links[r] = l
	}
	g.mu.Unlock()
	var sent sync.WaitGroup
	for r, l := range links {
		if kind == frameFail && r == rank {
			continue
		}
		sent.Go(func() { _ = l.send(g.options.Silence/beats, kind, rank, []byte(text)) })
	}
	sent.Wait()
}

// blame returns the rank that an error is about, and what to say of it.
func blame(self int, err error) (rank int, text string) {
	var of *rankError
	if errors.As(err, &of) {
		return of.rank, of.err.Error()
	}
	return self, "failed: " + reason(err)
}

// reason is the text of an error.
func reason(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return err.Error()
}

// fail ends the group, once, because of a rank. Rank 0 tells all others.
func (g *Group) fail(rank int, err error) {
	var cause error = &rankError{rank, err}
	if rank == g.place.Rank {
		cause = err // this process knows which rank it is
	}
	g.mu.Lock()
	first := g.ctx.Err() == nil
	if first {
		g.failure = cause
		g.end(cause)
	}
	g.mu.Unlock()
	if !first {
		return
	}
	g.tell(frameFail, cause)
	if g.options.Abort != nil {
		time.AfterFunc(abortAfter, func() {
			g.mu.Lock()
			closing := g.closing
			g.mu.Unlock()
			if !closing {
				g.options.Abort(cause)
			}
		})
	}
}

// watch reads the frames of a rank until its link ends.
func (g *Group) watch(rank int, l *link) {
	for {
		f, err := l.receive(g.options.Silence)
		if err != nil {
			g.lost(rank, err)
			return
		}
		switch {
		case f.kind == frameBeat:
		case f.kind == frameFail && (g.place.Rank != 0 || f.rank == rank):
			g.fail(f.rank, errors.New(f.text()))
		case f.kind == frameLeave && g.place.Rank == 0:
			g.leave(rank)
		case f.kind == frameWelcome && g.place.Rank != 0 && g.welcome(f):
		default:
			g.fail(rank, fmt.Errorf("(%s) sent a %w: kind %d about rank %d", g.who(rank), errMalformed, f.kind, f.rank))
			return
		}
	}
}

// welcome takes the frame that begins the work, once.
func (g *Group) welcome(f frame) bool {
	var w welcome
	if f.decode(&w) != nil {
		return false
	}
	select {
	case g.ready <- w:
		return true
	default:
		return false
	}
}

// leave notes that a rank has ended its work.
func (g *Group) leave(rank int) {
	g.mu.Lock()
	again := g.left[rank]
	g.left[rank] = true
	all := len(g.left) == g.place.Size-1
	l := g.links[rank]
	g.mu.Unlock()
	l.closeWrite()
	if all && !again {
		close(g.allLeft)
	}
}

// lost handles the end of a link.
func (g *Group) lost(rank int, err error) {
	g.mu.Lock()
	expected := g.closing && g.place.Rank != 0 || g.left[rank]
	g.mu.Unlock()
	who := g.who(rank)
	paused := g.pulse.paused(g.options.Silence)
	switch {
	case expected:
	case paused > 0:
		g.fail(g.place.Rank, fmt.Errorf("this process, rank %d, was stopped for %.0f s, and the others have gone on without it", g.place.Rank, paused.Seconds()))
	case errors.Is(err, os.ErrDeadlineExceeded):
		g.fail(rank, fmt.Errorf("(%s) has given no sign of life for %v: it hangs, or its host or network is down", who, g.options.Silence))
	case errors.Is(err, errMalformed):
		g.fail(rank, fmt.Errorf("(%s) sent a %w", who, err))
	case errors.Is(err, io.EOF):
		g.fail(rank, fmt.Errorf("(%s) has ended without a word: it was killed, or it crashed", who))
	default:
		g.fail(rank, fmt.Errorf("(%s) has ended without a word: it was killed, or it crashed, or its network is down (%w)", who, err))
	}
}

// who names the process of a rank.
func (g *Group) who(rank int) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.peers[rank]
	return h.who()
}
