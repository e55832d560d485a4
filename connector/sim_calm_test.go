package connector

import "time"

// simCalm is what is known of a request of a run without faults (but that consumers are
// restarted), in which it must end well, and every failure must become known at once.
type simCalm struct {
	expects, offers []*simLeg
	again           *simLeg // what has replaced the first of expects, if anything
	declined        time.Time
	never           bool // there is no producer's leg
}

// simSoon is how long anything takes without faults: messages, a handshake, rests, a sweep or
// two, ranks that are told one after the other, a WRITE that is under way.
const simSoon = 150 * time.Millisecond

// simStopped is how long it takes D to get its blocks back: a WRITE may be under way.
const simStopped = 70 * time.Millisecond

// judge checks a request at the end of a run without faults.
func (r *simRequest) judge() {
	c := &r.calm
	if len(c.expects) != 1 || c.expects[0].submitted().IsZero() {
		return
	}
	d := c.expects[0]
	if d.over && d.left > 0 { // its engine was killed
		return
	}
	p := &simLeg{}
	if len(c.offers) == 1 {
		p = c.offers[0]
	}
	met := latest(d.submitted(), p.submitted())
	switch {
	case c.again != nil:
		r.judgeAgain(c.again, p)
	case !d.cancelled.IsZero():
		// A CANCEL that overtakes the first registration of all cannot be answered: P has not met D.
		if r.acquainted(d.submitted()) {
			r.soon(d, latest(d.cancelled, d.submitted()), simStopped, "was cancelled")
		}
	case !c.declined.IsZero() && c.declined.Sub(d.submitted()) < simReceive/2 && d.submitted().Sub(c.declined) < simLease/2:
		r.soon(d, latest(d.submitted(), c.declined), simSoon, "was declined")
	case p.submitted().IsZero():
	case !p.cancelled.IsZero():
		// Without a transfer id a registration that comes later may be that of the next attempt.
		if early := d.submitted().Sub(p.cancelled); r.transfers && early < simLease/2 && -early < simReceive/2 {
			r.soon(d, latest(latest(p.cancelled, p.submitted()), d.submitted()), simSoon, "was cancelled by the producer")
		}
	case d.submitted().Sub(p.submitted()) < simLease/2 && p.submitted().Sub(d.submitted()) < simReceive/2 || d.announcedInTime(p):
		r.soon(d, met, simSoon, "was expected and offered")
		r.soon(p, met, simSoon, "was expected and offered")
		if d.failed || p.failed {
			r.s.violated("calm", "%s was expected and offered, and failed", r.x)
		}
	}
}

// judgeAgain checks that an offer serves the newer of two expectations, if it comes after both.
func (r *simRequest) judgeAgain(d, p *simLeg) {
	wait := p.submitted().Sub(d.submitted())
	if !d.submitted().IsZero() && p.cancelled.IsZero() && wait > 10*time.Millisecond && wait < simReceive/2 && !(d.over && d.left > 0) {
		r.soon(d, p.submitted(), simSoon, "was expected twice and offered")
		if d.failed {
			r.s.violated("calm", "%s was expected twice and offered, and failed", r.x)
		}
	}
}

// announcedInTime reports whether the consumer has kept the offer alive from its beginning.
func (leg *simLeg) announcedInTime(p *simLeg) bool {
	announced := leg.parts[0].announced
	return !announced.IsZero() && announced.Sub(p.submitted()) < simLease/2 && p.submitted().Sub(leg.submitted()) < simReceive/2
}

// acquainted reports whether the two engines have just dealt with each other.
func (r *simRequest) acquainted(at time.Time) bool {
	for _, other := range r.s.all {
		if other.p == r.p && other.d == r.d && len(other.calm.expects) == 1 && r.s.rates.kills == 0 {
			if d := other.calm.expects[0]; d.left == 0 && !d.failed && d.ended.Before(at) && at.Sub(d.ended) < simPeerTTL/2 {
				return true
			}
		}
	}
	return false
}

func (r *simRequest) soon(leg *simLeg, since time.Time, limit time.Duration, what string) {
	if took := leg.ended.Sub(since); leg.left > 0 || took > limit {
		r.s.violated("calm", "%s %s, and %s took %v to end", r.x, what, leg.engine.name, took)
	}
}
