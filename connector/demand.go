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
	// failed is why its registrations are refused: those that have come and, until forget,
	// those of the other ranks.
	failed *failure
	forget time.Time
}

// demandKey names a demand by the consumer's own id of the request.
type demandKey struct{ engineID, requestID string }

// written reports whether every rank has got what it asked for.
func (d *demand) written() bool {
	return d.every(func(w *write) bool { return w.landed })
}

// taken reports whether a WRITE for every rank was begun.
func (d *demand) taken() bool { return d.every(func(*write) bool { return true }) }

func (d *demand) every(ok func(*write) bool) bool {
	for _, reg := range d.regs {
		if reg.write == nil || !ok(reg.write) {
			return false
		}
	}
	return len(d.regs) == d.ranks
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
	keys := keysOf(in.TransferID, in.RequestID)
	if in.Release {
		keys.base = "" // only the transfer id counts
	}
	d = &demand{demandKey: key, keys: keys, regs: map[string]*registration{},
		ranks: max(1, in.DecodeTPSize/l.cfg.TPSize), peer: l.consumerAt(agent, in)}
	d.peer.users++
	l.demands[key] = d
	l.match(d)
	return d
}

// match finds what the producer has to say to a new demand: an offer, or that there will be
// none. Else it waits.
func (l *loop) match(d *demand) {
	if o, ok := l.waiting.find(d.keys); ok {
		l.stats.OfferFirst++
		l.waiting.remove(o)
		o.demand, d.offer = d, o
		return
	}
	if x, ok := l.declined.find(d.keys); ok {
		l.declined.remove(x)
		d.failed = x.why
		return
	}
	l.unmatched.add(d)
}

func consumerKey(in *notify.Registration) peerKey {
	return peerKey{engineID: in.DecodeEngineID, host: in.DecodeHost, port: in.DecodePort, consumer: true, tpSize: in.DecodeTPSize, ppSize: 1}
}

// consumerAt is the engine that a registration comes from. If it is known and does not know
// the agent, it has been restarted: it is met anew.
func (l *loop) consumerAt(agent string, in *notify.Registration) *peer {
	key := consumerKey(in)
	p := l.peerAt(key)
	if p.state == peerReady && !p.has(agent) {
		l.retire(p)
		p = l.peerAt(key)
	}
	return p
}

// consumerMet goes on with a demand once its consumer is known, or cannot be.
func (l *loop) consumerMet(d *demand, err *failure) {
	if d.peer == nil {
		return
	}
	if err != nil {
		l.log.Warn("a consumer that has registered cannot be reached", "peer", d.peer, "why", err)
		if d.offer != nil {
			l.failOffer(d.offer, err)
		}
		return
	}
	for agent, reg := range d.regs {
		if !d.peer.has(agent) {
			delete(d.regs, agent)
			l.endRegistration(reg)
			l.log.Warn("dropped a registration from an agent that is not a rank of the engine it names", "request", d.requestID, "from", agent, "engine", d.peer)
		}
	}
	switch {
	case d.offer != nil && len(d.regs) == 0:
		l.unmatch(d)
	case len(d.regs) == 0:
		l.dropDemand(d)
	case d.failed != nil:
		l.endDemand(d)
	case d.offer != nil:
		l.serve(d.offer)
	}
}

// unmatch lets an offer wait for another demand than one that nobody has made.
func (l *loop) unmatch(d *demand) {
	o := d.offer
	o.demand, d.offer = nil, nil
	l.dropDemand(d)
	l.seek(o)
}

// endDemand ends a demand with its offer, or because there will be none. If some of the ranks
// have not registered it is kept for a while, to tell them.
func (l *loop) endDemand(d *demand) {
	d.offer = nil
	if d.failed == nil || l.demands[d.demandKey] != d || len(d.regs) == d.ranks {
		l.dropDemand(d)
		return
	}
	d.forget = time.Now().Add(l.cfg.Lease)
	l.letGo(d)
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
	for _, reg := range d.regs {
		if d.failed != nil {
			l.refuse(reg, d.failed)
		}
		l.endRegistration(reg)
	}
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
				l.endRegistration(r)
			}
		}
		if len(d.regs) == 0 {
			l.log.Info("a consumer's registration ran out without an offer", "request", d.requestID, "from", d.peer)
			l.dropDemand(d)
		}
	}
}
