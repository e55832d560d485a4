package connector

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/internal/safego"
)

type peerState int

const (
	peerNew peerState = iota
	peerConnecting
	peerReady
)

// peerKey names a peer. An engine that is found under another address is another peer.
type peerKey struct {
	engineID string
	host     string
	port     int
}

// peer is a remote engine: the ranks of it that this rank deals with.
type peer struct {
	peerKey
	tpSize, ppSize int
	state          peerState
	ranks          []*remoteRank
	waiting        []func(*failure)
	users          int  // expects, registrations and offers that refer to it
	broken         bool // something failed: meet it anew once nobody uses it
	lastUsed       time.Time
}

// remoteRank is one loaded agent.
type remoteRank struct {
	agent   string
	mapping *blocks.Mapping // from this rank to that
	cache
	hearsWriting bool // it wants to hear when a WRITE begins
}

func (p *peer) String() string { return fmt.Sprintf("%s at %s:%d", p.engineID, p.host, p.port) }

func (p *peer) has(agent string) bool {
	for _, r := range p.ranks {
		if r.agent == agent {
			return true
		}
	}
	return false
}

func (p *peer) release() {
	p.users--
	p.lastUsed = time.Now()
}

// peerAt returns the peer to use from now on. A broken one is retired: those who use it
// keep it, everybody else meets the engine anew, which may have been restarted.
func (l *loop) peerAt(e Endpoint) *peer {
	key := peerKey{e.EngineID, e.Host, e.Port}
	p := l.peers[key]
	if p != nil && p.broken {
		l.retire(p)
		p = nil
	}
	if p == nil {
		p = &peer{peerKey: key, tpSize: max(1, e.TPSize), ppSize: max(1, e.PPSize), lastUsed: time.Now()}
		l.peers[key] = p
	}
	return p
}

// connect calls then, in the loop, once the peer is ready or has failed. Each failure
// counts for those who waited for it only: the next call tries again.
func (l *loop) connect(p *peer, then func(*failure)) {
	switch p.state {
	case peerReady:
		then(nil)
	case peerConnecting:
		p.waiting = append(p.waiting, then)
	case peerNew:
		p.state = peerConnecting
		p.waiting = append(p.waiting, then)
		l.dial(p)
	}
}

// dial shakes hands in a goroutine of the peer's own, so that a dead peer delays no other.
func (l *loop) dial(p *peer) {
	l.dialing++
	key, tpSize, ppSize := p.peerKey, p.tpSize, p.ppSize
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.HandshakeTimeout)
	panicked := func(value any, stack []byte) {
		l.panicked(value, stack)
		l.post(func(l *loop) { l.met(p, nil, failf(ReasonInternal, "%v", value)) })
	}
	safego.Go("handshake "+p.String(), panicked, func() {
		defer cancel()
		ranks, err := l.shake(ctx, key, tpSize, ppSize)
		l.post(func(l *loop) { l.met(p, ranks, err) })
	})
}

// met takes in the result of a handshake.
func (l *loop) met(p *peer, ranks []*remoteRank, err *failure) {
	l.dialing--
	if err != nil {
		l.stats.FailedHandshakes++
		l.log.Warn("handshake failed", "peer", p, "why", err)
		p.state = peerNew
	} else {
		l.log.Info("handshake done", "peer", p)
		p.state, p.ranks = peerReady, ranks
		for _, r := range ranks {
			l.agents[r.agent]++
		}
	}
	p.lastUsed = time.Now()
	waiting := p.waiting
	p.waiting = nil
	for _, then := range waiting {
		then(err)
	}
}

// retire takes a peer out of use. It is unloaded when its last user has gone.
func (l *loop) retire(p *peer) {
	delete(l.peers, p.peerKey)
	l.retired = append(l.retired, p)
}

// tidyPeers retires peers that are broken or long unused, and unloads retired ones.
func (l *loop) tidyPeers(now time.Time) {
	for _, p := range l.peers {
		idle := l.cfg.PeerTTL > 0 && now.Sub(p.lastUsed) > l.cfg.PeerTTL
		if p.users == 0 && p.state != peerConnecting && (p.broken || idle || p.state == peerNew) {
			l.retire(p)
		}
	}
	if l.dialing > 0 {
		return // a handshake may be loading the very agent that would be unloaded here
	}
	l.retired = slices.DeleteFunc(l.retired, func(p *peer) bool {
		if p.users == 0 {
			l.unload(p)
		}
		return p.users == 0
	})
}

// unload drops the agents of a peer that no other peer shares: an engine that was met
// twice without having been restarted is one agent in NIXL.
func (l *loop) unload(p *peer) {
	for _, r := range p.ranks {
		if l.agents[r.agent]--; l.agents[r.agent] > 0 {
			continue
		}
		delete(l.agents, r.agent)
		if err := l.nixl.Unload(r.agent); err != nil {
			l.log.Debug("unload peer", "peer", p, "why", err) // NIXL drops agents it has lost by itself
		}
	}
	p.ranks = nil
}
