package connector

import "time"

// simCalm is what is known of a request of a run without faults, in which it must end well,
// and every failure must become known at once.
type simCalm struct {
	expects, offers []*simLeg
	declined        time.Time
	never           bool // there is no producer's leg
}

// simSoon is how long anything takes without faults: messages, a handshake, rests, a sweep or
// two, ranks that are told one after the other, a WRITE that is under way.
const simSoon = 150 * time.Millisecond

// judge checks a request at the end of a run without faults.
func (r *simRequest) judge() {
	c := &r.calm
	if len(c.expects) != 1 || c.expects[0].submitted.IsZero() {
		return
	}
	d := c.expects[0]
	p := &simLeg{}
	if len(c.offers) == 1 {
		p = c.offers[0]
	}
	met := latest(d.submitted, p.submitted)
	switch {
	case !d.cancelled.IsZero():
		r.soon(d, latest(d.cancelled, d.submitted), "was cancelled")
	case !c.declined.IsZero() && c.declined.Sub(d.submitted) < simReceive/2 && d.submitted.Sub(c.declined) < simLease/2:
		r.soon(d, latest(d.submitted, c.declined), "was declined")
	case p.submitted.IsZero():
	case !p.cancelled.IsZero():
		if p.cancelled.Sub(d.submitted) > 0 && p.cancelled.Sub(d.submitted) < simReceive/2 {
			r.soon(d, latest(p.cancelled, p.submitted), "was cancelled by the producer")
		}
	case d.submitted.Sub(p.submitted) < simLease/2 && p.submitted.Sub(d.submitted) < simReceive/2 || d.announcedInTime(p):
		r.soon(d, met, "was expected and offered")
		r.soon(p, met, "was expected and offered")
		if d.failed || p.failed {
			r.s.violated("calm", "%s was expected and offered, and failed", r.x)
		}
	}
}

// announcedInTime reports whether the consumer has kept the offer alive from its beginning.
func (leg *simLeg) announcedInTime(p *simLeg) bool {
	return leg.announced && leg.parts[0].announced.Sub(p.submitted) < simLease/2 && p.submitted.Sub(leg.submitted) < simReceive/2
}

func (r *simRequest) soon(leg *simLeg, since time.Time, what string) {
	if took := leg.ended.Sub(since); leg.left > 0 || took > simSoon {
		r.s.violated("calm", "%s %s, and %s took %v to end", r.x, what, leg.engine.name, took)
	}
}
