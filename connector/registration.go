package connector

import (
	"time"

	"github.com/nixlpush/nixlpush/notify"
)

// registration is what one rank of a consumer asks for, and until when it may be written.
type registration struct {
	*notify.Registration
	agent      string // the rank's
	demand     *demand
	since      time.Time
	postBefore time.Time
	write      *write // nil before
	cancelled  bool   // the consumer waits to hear that nobody writes it
	over       bool   // nobody writes it, nor will
}

// registrationKey names a registration with an epoch.
type registrationKey struct {
	agent string
	epoch uint64
}

func (r *registration) key() registrationKey { return registrationKey{r.agent, r.Epoch} }

// Bounds of what strangers can make an engine hold.
const (
	maxDemands    = 1 << 17
	maxPast       = 1 << 17
	maxTTL        = time.Hour
	maxEarlyDials = 64 // handshakes at a time for offers that may never come; each takes a descriptor
)

// register takes in a consumer rank's PUSH_REG.
func (l *loop) register(agent string, in *notify.Registration) {
	key := registrationKey{agent, in.Epoch}
	if in.Epoch > 0 && (l.registrations[key] != nil || l.past.has(key)) {
		l.log.Debug("a registration that is known, or was cancelled before it came", "request", in.RequestID, "from", agent)
		return
	}
	ttl := in.TTL
	if ttl <= 0 {
		ttl = l.cfg.ReceiveTimeout // a stock consumer names none and waits for ever
	}
	ttl = min(ttl, max(maxTTL, l.cfg.ReceiveTimeout))
	d := l.demandOf(agent, in)
	if d == nil {
		l.log.Error("too many registrations wait for an offer; dropped one", "request", in.RequestID, "from", agent)
		return
	}
	reg := &registration{Registration: in, agent: agent, demand: d, since: time.Now(), postBefore: l.arrival().Add(ttl)}
	if !l.admit(reg) {
		return
	}
	if d.peer == nil { // too late
		l.refuse(reg, d.failed)
		if len(d.regs) == d.ranks {
			l.dropDemand(d)
		}
		return
	}
	if d.offer == nil && d.failed == nil && d.peer.state == peerNew && l.dialing >= maxEarlyDials {
		return // it is dialled when an offer comes
	}
	l.connect(d.peer, func(err *failure) { l.consumerMet(d, err) })
}

// admit gives a registration its rank's place in the demand. If it was sent again, the newest
// blocks count; what may be written for the older one goes on.
func (l *loop) admit(reg *registration) bool {
	d, agent := reg.demand, reg.agent
	old := d.regs[agent]
	switch {
	case old == nil && len(d.regs) == d.ranks:
		l.log.Warn("dropped a registration from one rank too many", "request", reg.RequestID, "from", agent, "ranks", d.ranks)
		return false
	case old != nil && old.write != nil && reg.Epoch == 0:
		l.log.Debug("a second registration of what is being written", "request", reg.RequestID, "from", agent)
		return false
	case old != nil && reg.Epoch > 0 && reg.Epoch < old.Epoch:
		l.log.Debug("an older registration that comes late", "request", reg.RequestID, "from", agent)
		return false
	case old != nil && old.write == nil:
		l.endRegistration(old)
	}
	d.regs[agent] = reg
	if reg.Epoch > 0 {
		l.registrations[reg.key()] = reg
	}
	return true
}

// withdraw takes in a consumer rank's CANCEL. It is answered when nobody writes the
// registration any more: at once, or when its WRITE has ended.
func (l *loop) withdraw(agent string, epoch uint64) {
	key := registrationKey{agent, epoch}
	reg := l.registrations[key]
	if reg == nil {
		l.past.add(key, time.Now().Add(l.cfg.Lease)) // it may be on its way still
		l.tell(agent, notify.Cancelled(epoch))
		return
	}
	reg.cancelled = true
	why := failf(ReasonCancelled, "%s has cancelled the request", reg.demand.engineID)
	running := reg.write != nil && !l.abandon(reg.write)
	if !running {
		l.endRegistration(reg)
	}
	d := reg.demand
	switch {
	case d.regs[agent] != reg: // it was replaced: the offer serves the newer one
		if d.offer != nil {
			l.settle(d.offer)
		}
	case d.offer == nil:
		delete(d.regs, agent)
		if len(d.regs) == 0 {
			l.dropDemand(d)
		}
	case running:
		l.abandonOffer(d.offer, why)
	default:
		l.failOffer(d.offer, why)
	}
}

// refuse tells a consumer rank that it will not be written, and why.
func (l *loop) refuse(reg *registration, why *failure) {
	if !reg.over && !reg.cancelled && reg.Epoch > 0 {
		l.answer(reg, notify.Failed(reg.Epoch, why.Error()))
	}
	l.endRegistration(reg)
}

// endRegistration is called when nobody writes a registration, nor will.
func (l *loop) endRegistration(reg *registration) {
	if reg.over || reg.Epoch == 0 {
		return
	}
	reg.over = true
	delete(l.registrations, reg.key())
	l.past.add(reg.key(), time.Now().Add(l.cfg.Lease))
	if reg.cancelled {
		l.answer(reg, notify.Cancelled(reg.Epoch))
	}
}

// answer tells a consumer rank what becomes of a registration, once the rank is known.
func (l *loop) answer(reg *registration, message []byte) {
	p := l.peers[consumerKey(reg.Registration)]
	if p == nil || p.state != peerConnecting {
		l.tell(reg.agent, message)
		return
	}
	l.connect(p, func(err *failure) {
		if err == nil {
			l.tell(reg.agent, message)
		}
	})
}

// tell sends a message that the receiver can do without: it asks again, or has its deadline.
func (l *loop) tell(agent string, message []byte) {
	if err := l.nixl.Notify(agent, message); err != nil {
		l.stats.FailedNotifications++
		l.log.Debug("notification not sent", "to", agent, "why", err)
	}
}

// past remembers registrations that have ended for a while, so that one that comes late or
// twice is not taken for a new one.
type past struct {
	keys  map[registrationKey]struct{}
	queue []pastEntry // by until, as all are kept equally long
}

type pastEntry struct {
	registrationKey
	until time.Time
}

func (p *past) has(key registrationKey) bool {
	_, ok := p.keys[key]
	return ok
}

func (p *past) add(key registrationKey, until time.Time) {
	if p.has(key) {
		return
	}
	if len(p.queue) == maxPast {
		p.drop(1)
	}
	p.keys[key] = struct{}{}
	p.queue = append(p.queue, pastEntry{key, until})
}

func (p *past) expire(now time.Time) {
	n := 0
	for n < len(p.queue) && now.After(p.queue[n].until) {
		n++
	}
	p.drop(n)
}

func (p *past) drop(n int) {
	for _, e := range p.queue[:n] {
		delete(p.keys, e.registrationKey)
	}
	if p.queue = p.queue[n:]; len(p.queue) == 0 {
		p.queue = nil // let go of the memory of a burst
	}
}
