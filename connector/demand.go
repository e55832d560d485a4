package connector

import (
	"time"

	"github.com/nixlpush/nixlpush/notify"
)

// demand is what a consumer engine asks for in one request: a registration from each of its
// ranks that this rank writes to, which come one by one. An offer serves it.
type demand struct {
	demandKey
	keys  matchKeys
	peer  *peer // nil once the demand is over
	ranks int   // that are to register
	regs  map[string]*registration
	offer *offer // that it is matched with
	// forget is set when its offer has ended without some of the ranks: until then their
	// registrations are known to come too late.
	forget time.Time
}

// demandKey names a demand by the consumer's own id of the request.
type demandKey struct{ engineID, requestID string }

// registration is what one rank of a consumer asks for, and until when it may be written. It
// is kept under the name of the agent that has sent it.
type registration struct {
	*notify.Registration
	since      time.Time
	postBefore time.Time
	write      *write // nil before
}

// Bounds of what strangers can make an engine hold.
const (
	maxDemands    = 1 << 17
	maxTTL        = time.Hour
	maxEarlyDials = 64 // handshakes at a time for offers that may never come; each takes a descriptor
)

// register takes in a consumer rank's PUSH_REG.
func (l *loop) register(agent string, in *notify.Registration) {
	ttl := in.TTL
	if ttl <= 0 {
		ttl = l.cfg.ReceiveTimeout // a stock consumer names none and waits for ever
	}
	ttl = min(ttl, max(maxTTL, l.cfg.ReceiveTimeout))
	reg := &registration{Registration: in, since: time.Now(), postBefore: l.arrival().Add(ttl)}
	d := l.demandOf(agent, in)
	if d == nil {
		l.log.Error("too many registrations wait for an offer; dropped one", "request", in.RequestID, "from", agent)
		return
	}
	old := d.regs[agent]
	switch {
	case old != nil && old.write != nil:
		l.log.Debug("a second registration of what is being written", "request", in.RequestID, "from", agent)
		return
	case old == nil && len(d.regs) == d.ranks:
		l.log.Warn("dropped a registration from one rank too many", "request", in.RequestID, "from", agent, "ranks", d.ranks)
		return
	}
	d.regs[agent] = reg // if it was sent again, the newest blocks count
	if d.peer == nil {  // too late
		if len(d.regs) == d.ranks {
			l.dropDemand(d)
		}
		return
	}
	if d.offer == nil && d.peer.state == peerNew && l.dialing >= maxEarlyDials {
		return // it is dialled when an offer comes
	}
	l.connect(d.peer, func(err *failure) { l.consumerMet(d, err) })
}

// demandOf finds the demand that a registration belongs to, or makes one. It returns nil if
// there are too many.
func (l *loop) demandOf(agent string, in *notify.Registration) *demand {
	key := demandKey{in.DecodeEngineID, in.RequestID}
	d := l.demands[key]
	if d != nil {
		over := d.peer == nil && d.regs[agent] != nil // the rank has been in it: this is another
		if !over && d.keys.transfer == in.TransferID {
			return d
		}
		l.dropDemand(d)
	}
	if len(l.demands) >= maxDemands {
		return nil
	}
	d = &demand{demandKey: key, keys: keysOf(in.TransferID, in.RequestID), regs: map[string]*registration{},
		ranks: max(1, in.DecodeTPSize/l.cfg.TPSize), peer: l.consumerAt(agent, in)}
	d.peer.users++
	l.demands[key] = d
	if o, ok := l.waiting.find(d.keys); ok {
		l.stats.OfferFirst++
		l.waiting.remove(o)
		o.demand, d.offer = d, o
	} else {
		l.unmatched.add(d)
	}
	return d
}

// consumerAt is the engine that a registration comes from. If it is known and does not know
// the agent, it has been restarted: it is met anew.
func (l *loop) consumerAt(agent string, in *notify.Registration) *peer {
	key := peerKey{engineID: in.DecodeEngineID, host: in.DecodeHost, port: in.DecodePort, consumer: true, tpSize: in.DecodeTPSize, ppSize: 1}
	p := l.peerAt(key)
	if p.state == peerReady && !p.has(agent) {
		l.retire(p)
		p = l.peerAt(key)
	}
	return p
}

// consumerMet goes on with a demand once its consumer is known, or cannot be.
func (l *loop) consumerMet(d *demand, err *failure) {
	switch {
	case d.peer == nil:
	case err != nil:
		l.log.Warn("a consumer that has registered cannot be reached", "peer", d.peer, "why", err)
		if d.offer != nil {
			l.failOffer(d.offer, err)
		}
	default:
		for agent := range d.regs {
			if !d.peer.has(agent) {
				delete(d.regs, agent)
				l.log.Warn("dropped a registration from an agent that is not a rank of the engine it names", "request", d.requestID, "from", agent, "engine", d.peer)
			}
		}
		switch {
		case d.offer != nil && len(d.regs) == 0:
			l.unmatch(d)
		case len(d.regs) == 0:
			l.dropDemand(d)
		case d.offer != nil:
			l.serve(d.offer)
		}
	}
}

// unmatch lets an offer wait for another demand than one that nobody has made.
func (l *loop) unmatch(d *demand) {
	o := d.offer
	o.demand, d.offer = nil, nil
	l.dropDemand(d)
	l.seek(o)
}

// endDemand ends a demand with its offer.
func (l *loop) endDemand(d *demand) {
	d.offer = nil
	if l.demands[d.demandKey] == d && len(d.regs) < d.ranks {
		d.forget = time.Now().Add(l.cfg.Lease)
		l.letGo(d)
		return
	}
	l.dropDemand(d)
}

// dropDemand takes a demand out of the tables. One that is matched goes on with its offer.
func (l *loop) dropDemand(d *demand) {
	if l.demands[d.demandKey] == d {
		delete(l.demands, d.demandKey)
	}
	if d.offer != nil {
		return
	}
	l.unmatched.remove(d)
	l.letGo(d)
}

func (l *loop) letGo(d *demand) {
	if d.peer != nil {
		d.peer.release()
		d.peer = nil
	}
}

// sweepDemand drops what nobody may write any more.
func (l *loop) sweepDemand(d *demand, now time.Time) {
	switch {
	case d.offer != nil:
	case d.peer == nil:
		if now.After(d.forget) {
			l.dropDemand(d)
		}
	default:
		for agent, r := range d.regs {
			if now.After(r.postBefore) {
				delete(d.regs, agent)
			}
		}
		if len(d.regs) == 0 {
			l.log.Info("a consumer's registration ran out without an offer", "request", d.requestID, "from", d.peer)
			l.dropDemand(d)
		}
	}
}
