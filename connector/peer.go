package connector

import (
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

// peerKey names a peer. An engine that is found under another address, or that is met in
// the other role or with other sizes, is another peer.
type peerKey struct {
	engineID string
	host     string
	port     int
	consumer bool // it is written to; else it writes
	tpSize   int
	ppSize   int
}

func (p peerKey) String() string { return fmt.Sprintf("%s at %s:%d", p.engineID, p.host, p.port) }

// keyOf is the key of a producer.
func keyOf(e Endpoint) peerKey {
	return peerKey{engineID: e.EngineID, host: e.Host, port: e.Port, tpSize: max(1, e.TPSize), ppSize: max(1, e.PPSize)}
}

// peer is a remote engine: the ranks of it that this rank deals with.
type peer struct {
	peerKey
	state    peerState
	ranks    []*remoteRank
	waiting  []func(*failure)
	users    int  // expects and demands that refer to it
	broken   bool // something failed: meet it anew once nobody uses it
	epochs   bool // it is a nixlpush engine that knows what package notify calls epochs
	lastUsed time.Time
}

// remoteRank is one loaded agent.
type remoteRank struct {
	address
	agent   string
	mapping *blocks.Mapping // of what one of the two writes to the other
	cache
	metadata []byte // until it is loaded
	epochs   bool   // see peer
}

func (p *peer) has(agent string) bool {
	return slices.ContainsFunc(p.ranks, func(r *remoteRank) bool { return r.agent == agent })
}

func (p *peer) release() {
	p.users--
	p.lastUsed = time.Now()
}

// send sends a message to one agent of a peer, which is met anew after a failure.
func (l *loop) send(p *peer, agent string, message []byte) error {
	err := l.nixl.Notify(agent, message)
	if err != nil {
		l.stats.FailedNotifications++
		p.broken = true
	}
	return err
}

// peerAt returns the peer to use from now on. A broken one is retired: those who use it
// keep it, everybody else meets the engine anew, which may have been restarted.
func (l *loop) peerAt(key peerKey) *peer {
	p := l.peers[key]
	if p != nil && p.broken {
		l.retire(p)
		p = nil
	}
	if p == nil {
		p = &peer{peerKey: key, lastUsed: time.Now()}
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
	panicked := func(value any, stack []byte) {
		l.panicked(value, stack)
		l.post(func(l *loop) { l.met(p, nil, failf(ReasonInternal, "%v", value)) })
	}
	safego.Go("handshake "+p.String(), panicked, func() {
		ranks, err := l.shake(l.ctx, p.peerKey)
		l.post(func(l *loop) { l.met(p, ranks, err) })
	})
}

// met takes in the result of a handshake.
func (l *loop) met(p *peer, ranks []*remoteRank, err *failure) {
	l.dialing--
	for _, r := range ranks {
		l.agents[r.agent]++
	}
	if err != nil {
		l.stats.FailedHandshakes++
		l.log.Warn("handshake failed", "peer", p, "why", err)
		p.state = peerNew
		if len(ranks) > 0 {
			l.retired = append(l.retired, &peer{peerKey: p.peerKey, ranks: ranks})
		}
	} else {
		l.log.Info("handshake done", "peer", p, "ranks", len(ranks))
		p.state, p.ranks = peerReady, ranks
		p.epochs = !slices.ContainsFunc(ranks, func(r *remoteRank) bool { return !r.epochs })
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
