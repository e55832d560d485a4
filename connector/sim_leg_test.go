package connector

import (
	"slices"
	"time"
)

// simLeg is one Expect or Offer of an engine, on all its ranks.
type simLeg struct {
	request  *simRequest
	engine   *simEngine
	offering bool
	tag      uint64
	id       string // that the engine has for the request
	transfer string

	blocks []uint32
	first  int // position that the blocks begin with in the prompt
	parts  []simPart
	left   int  // ranks that have not reported
	over   bool // all have, or the engine's life has ended

	announced   bool          // told to the engine, without blocks
	lost        time.Duration // in which the engine stood still
	wanted      time.Time     // an offer: when a consumer last was interested
	cancelled   time.Time
	failed      bool
	ended       time.Time
	withoutPeer bool // an expectation from an address where nobody is
}

// simPart is a leg on one rank.
type simPart struct {
	announced time.Time
	since     time.Time
	kind      Kind // 0 before the event
}

// open makes a leg known to its engine's scheduler.
func (e *simEngine) open(r *simRequest, offering bool, id string) *simLeg {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	e.next++
	leg := &simLeg{request: r, engine: e, offering: offering, tag: e.next, id: id, transfer: r.transfer(),
		parts: make([]simPart, e.tp), left: e.tp, wanted: time.Now()}
	e.legs[leg.tag] = leg
	return leg
}

// simPatience is how long a client lets its request wait for blocks.
const simPatience = 500 * time.Millisecond

// allocate calls then once a leg has its blocks, which may be never.
func (leg *simLeg) allocate(n int, then func()) {
	e := leg.engine
	try := func() bool {
		if leg.over || len(e.pool.free) < n {
			return leg.over
		}
		e.s.mu.Lock()
		leg.blocks = e.pool.take(leg, n)
		leg.fill()
		e.s.mu.Unlock()
		then()
		return true
	}
	if len(e.backlog) > 0 || !try() {
		e.backlog = append(e.backlog, try)
		e.s.after(simPatience, func() {
			if leg.blocks == nil {
				leg.cancel()
			}
		})
	}
}

// fill gives the blocks what the prefill computes, or what no prompt has.
func (leg *simLeg) fill() {
	for _, r := range leg.engine.ranks {
		for i, block := range leg.blocks {
			r.cache.each(block, func(at place, word *uint64) {
				*word = mix(leg.tag | 1<<63)
				if leg.offering {
					*word = leg.value(i, at)
				}
			})
		}
	}
}

// value is what the i-th block of a leg holds, or shall hold.
func (leg *simLeg) value(i int, at place) uint64 {
	return kv(leg.request.prompt, leg.first+i, at)
}

// whole reports whether a rank has got every word.
func (leg *simLeg) whole(r *simRank) bool {
	ok := true
	for i, block := range leg.blocks {
		r.cache.each(block, func(at place, word *uint64) { ok = ok && *word == leg.value(i, at) })
	}
	return ok
}

// submit gives a step to all ranks, which take it in at about the same time.
func (leg *simLeg) submit(step func() Step) {
	e := leg.engine
	for tp, r := range e.ranks {
		e.step(r, func() {
			if leg.over {
				return
			}
			next := step()
			leg.parts[tp].note(next, time.Now())
			seen := next
			seen.Expects = slices.Clone(next.Expects) // Submit fills in what is left out
			r.post(func(*loop) { r.seen.command(seen) })
			if err := r.Submit(next); err != nil {
				e.s.violated("S4", "%s refuses tag %d: %v", r.agent, leg.tag, err)
			}
		})
	}
}

// step calls f when a worker of this life of an engine gets to it, in order.
func (e *simEngine) step(r *simRank, f func()) {
	s := e.s
	var run func()
	run = func() {
		switch {
		case !e.up() || e.ranks[r.cfg.TPRank] != r:
		case e.standing():
			s.at(time.Unix(0, e.stopped.Load()), run)
		default:
			f()
		}
	}
	at := time.Now().Add(upTo(s.rng, 2*time.Millisecond))
	if at.Before(r.lastStep) {
		at = r.lastStep
	}
	r.lastStep = at
	s.at(at, run)
}

// note keeps when a step is given to the rank.
func (p *simPart) note(s Step, now time.Time) {
	switch {
	case len(s.Cancels) > 0:
	case len(s.Expects) > 0 && s.Expects[0].Blocks == nil:
		p.announced = now
	default:
		p.since = now
	}
}

// submitted is when the last rank was given the blocks; zero if not all were.
func (leg *simLeg) submitted() (last time.Time) {
	for _, p := range leg.parts {
		if p.since.IsZero() {
			return time.Time{}
		}
		last = latest(last, p.since)
	}
	return last
}

func (leg *simLeg) cancel() {
	if leg.over || !leg.cancelled.IsZero() {
		return
	}
	leg.cancelled = time.Now()
	leg.engine.s.tell(leg.engine.name, "cancels tag %d", leg.tag)
	if leg.announced && leg.blocks == nil { // it ends without an event
		for _, r := range leg.engine.ranks {
			step := Step{Cancels: []uint64{leg.tag}}
			leg.engine.step(r, func() {
				r.post(func(*loop) { r.seen.command(step) })
				_ = r.Submit(step)
			})
		}
		leg.close()
		return
	}
	if leg.blocks == nil { // nobody knows of it
		leg.close()
		return
	}
	leg.submit(func() Step { return Step{Cancels: []uint64{leg.tag}} })
}

// close gives the blocks of a leg to whoever waits for some.
func (leg *simLeg) close() {
	e := leg.engine
	e.s.mu.Lock()
	leg.over = true
	delete(e.legs, leg.tag)
	e.pool.put(leg.blocks)
	e.s.mu.Unlock()
	for len(e.backlog) > 0 {
		try := e.backlog[0]
		if !try() {
			return
		}
		e.backlog = e.backlog[1:]
	}
}

// event takes in what a rank reports.
func (e *simEngine) event(rank int, ev Event) {
	s, leg := e.s, e.legs[ev.Tag]
	s.tell(e.ranks[rank].agent, "event of tag %d: %s %s", ev.Tag, kindName[ev.Kind], ev.Message)
	if leg == nil || leg.parts[rank].kind != 0 {
		s.violated("S4", "%s reports tag %d twice or unasked: %+v", e.ranks[rank].agent, ev.Tag, ev)
		return
	}
	if (ev.Kind == Sent || ev.Kind == SendFailed) != leg.offering {
		s.violated("S4", "%s reports tag %d wrongly: %+v", e.ranks[rank].agent, ev.Tag, ev)
	}
	if ev.Kind == Received && !leg.whole(e.ranks[rank]) {
		s.violated("S3", "%s has not got all of tag %d", e.ranks[rank].agent, ev.Tag)
	}
	s.tally.outcome(ev)
	leg.parts[rank].kind = ev.Kind
	leg.failed = leg.failed || ev.Kind == ReceiveFailed || ev.Kind == SendFailed
	leg.left--
	leg.ended = time.Now()
	if leg.left > 0 {
		if leg.failed && !leg.offering && s.rng.IntN(2) == 0 {
			leg.cancel() // there is no use in the other ranks' shares
		}
		return
	}
	leg.request.ended(leg)
}

var kindName = map[Kind]string{Sent: "sent", SendFailed: "send failed", Received: "RECEIVED", ReceiveFailed: "receive failed"}
