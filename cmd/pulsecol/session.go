package main

import (
	"context"
	"errors"
	"reflect"
	"runtime/debug"
	"sync"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/models"
)

// session is a *llada.Session or a *dream.Session.
type session interface{ Close() error }

// keptSession is the session of the latest configuration, which keeps graphs and memory for
// the next generation.
type keptSession struct {
	m    *openModel
	cfg  pulsecol.Config
	open session // nil before the first generation
}

// under returns the session of a configuration.
func (k *keptSession) under(cfg pulsecol.Config) (session, error) {
	if k.open != nil && reflect.DeepEqual(k.cfg, cfg) {
		return k.open, nil
	}
	if err := k.close(); err != nil {
		return nil, err
	}
	s, err := k.m.newSession(cfg)
	if err != nil {
		return nil, err
	}
	k.cfg, k.open = cfg, s
	return s, nil
}

// checkMemory reports a generation of one sequence that needs more memory than the machine
// has available. What earlier generations have left is given up before that.
func (k *keptSession) checkMemory(open *modelFlag, mem models.Memory, tokens int) error {
	err := open.checkMemory(mem, 1, tokens)
	if err == nil || k.open == nil {
		return err
	}
	if err := k.close(); err != nil {
		return err
	}
	debug.FreeOSMemory()
	return open.checkMemory(mem, 1, tokens)
}

// close frees the session. The next generation makes another one.
func (k *keptSession) close() error {
	if k.open == nil {
		return nil
	}
	s := k.open
	k.open = nil
	return s.Close()
}

// sessionPool lends sessions to generations that run at once: as many as there are at most
// at one time.
type sessionPool struct {
	m    *openModel
	mu   sync.Mutex
	idle []*keptSession // the latest last
}

// generate generates from one prompt in a session that no other generation uses, if
// possible one of its configuration.
func (p *sessionPool) generate(ctx context.Context, s sampler, cfg pulsecol.Config, prompt []int32) (*models.Result, error) {
	k := p.take(cfg)
	defer p.put(k)
	in, err := k.under(cfg)
	if err != nil {
		return nil, err
	}
	results, err := s.generateIn(ctx, in, [][]int32{prompt}, nil)
	if err != nil {
		return nil, err
	}
	return &results[0], nil
}

func (p *sessionPool) take(cfg pulsecol.Config) *keptSession {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return &keptSession{m: p.m}
	}
	at := 0
	for i, k := range p.idle {
		if reflect.DeepEqual(k.cfg, cfg) {
			at = i
		}
	}
	k := p.idle[at]
	p.idle = append(p.idle[:at], p.idle[at+1:]...)
	return k
}

func (p *sessionPool) put(k *keptSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, k)
}

// close frees the sessions, none of which is in use.
func (p *sessionPool) close() (err error) {
	for _, k := range p.idle {
		err = errors.Join(err, k.close())
	}
	p.idle = nil
	return err
}
