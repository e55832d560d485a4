package connector

import (
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
	"github.com/nixlpush/nixlpush/notify"
)

// violated notes that a rule of safety does not hold. The first one counts.
func (s *sim) violated(rule, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violation(rule, format, args...)
}

// violation is the same with the lock held.
func (s *sim) violation(rule, format string, args ...any) {
	s.note("CHECK", "VIOLATION of "+rule+": "+format, args...)
	if s.broken == "" {
		s.broken = rule
	}
}

// sound reports whether no rule has been violated so far.
func (s *sim) sound() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken == ""
}

// sent looks at a message that an engine sends.
func (s *sim) sent(m nixltest.Message) {
	if len(s.wire) < 200 {
		s.wire = append(s.wire, m.Payload)
	} else {
		s.wire[s.rng2.IntN(len(s.wire))] = m.Payload
	}
	message, err := notify.Decode(m.Payload)
	from := s.ranks[m.From]
	if err != nil || message.Kind != notify.KindRegistration || from == nil {
		return
	}
	reg := message.Registration
	s.epochs = append(s.epochs, reg.Epoch)
	var leg *simLeg
	for _, block := range reg.Blocks[0] {
		owner := from.engine.pool.owner[block]
		if owner == nil || owner.offering || owner.id != reg.RequestID || leg != nil && owner != leg {
			s.violation("S1", "%s registers %s with block %d, which is another's", m.From, reg.RequestID, block)
			return
		}
		leg = owner
	}
	s.registered[registrationKey{m.From, reg.Epoch}] = leg
	s.registeredID[m.From+" "+reg.RequestID] = leg
}

// landing checks a WRITE whose bytes are about to move. The fabric is locked.
func (s *sim) landing(t nixltest.Transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(t.Initiator, "WRITE to %s (%s) LANDS", t.Target, t.Notif)
	from, to := s.ranks[t.Initiator], s.ranks[t.Target]
	want := s.registrationOf(t)
	if want == nil {
		s.violation("S1", "a WRITE that %s has not registered for: %s", t.Target, t.Notif)
		return
	}
	if !want.waits(to) {
		s.violation("S1", "a WRITE for tag %d of %s, which does not wait any more", want.tag, t.Target)
	}
	for i := range t.Remote {
		s.landingRange(from, to, want, t.Local[i], t.Remote[i])
	}
}

// registrationOf is the leg that a WRITE is for, by what it will notify.
func (s *sim) registrationOf(t nixltest.Transfer) *simLeg {
	m, err := notify.Decode(t.Notif)
	switch {
	case err != nil:
	case m.Kind == notify.KindDone && !s.rates.stock:
		return s.registered[registrationKey{t.Target, m.Epoch}]
	case m.Kind == notify.KindCompletion && s.rates.stock:
		return s.registeredID[t.Target+" "+m.RequestID]
	}
	return nil
}

// landingRange checks one range of a WRITE, word by word.
func (s *sim) landingRange(from, to *simRank, want *simLeg, local, remote nixl.Desc) {
	src, n, srcOK := from.cache.at(local)
	dst, _, dstOK := to.cache.at(remote)
	if !srcOK || !dstOK {
		s.violation("S1", "a WRITE outside the caches: %v to %v", local, remote)
		return
	}
	for i := range n {
		at, source := to.cache.place(dst+i), from.cache.place(src+i)
		if owner := to.engine.pool.owner[at.block]; owner != want {
			s.violation("S1", "a WRITE for tag %d of %s into block %d, which is another's", want.tag, to.agent, at.block)
			return
		}
		offer := from.engine.pool.owner[source.block]
		if offer == nil || !offer.offering || !offer.waits(from) {
			s.violation("S2", "a WRITE of %s reads block %d, which was given back", from.agent, source.block)
			return
		}
		if from.cache.words[src+i] != want.value(want.position(at.block), at) {
			s.violation("S2", "a WRITE of %s reads block %d of tag %d, which is not what tag %d of %s wants in block %d", from.agent, source.block, offer.tag, want.tag, to.agent, at.block)
			return
		}
	}
}

// waits reports whether a rank has not reported a leg yet, not even in its queue of events.
func (leg *simLeg) waits(r *simRank) bool {
	r.events.mu.Lock()
	defer r.events.mu.Unlock()
	role, ok := r.events.live[leg.tag]
	return ok && role != announced && !leg.over
}

// position of a block in a leg's list, which holds it.
func (leg *simLeg) position(block uint32) int {
	for i, id := range leg.blocks {
		if id == block {
			return i
		}
	}
	return -1
}

// How long a leg may take (rule S4): see docs/testing.md.
const (
	simSlack       = 4*sweepEvery + 20*time.Millisecond
	simExpectBound = simReceive + stopWait + simSlack
	simOfferBound  = simLease + 2*simHandshake + simSlowCreate + simSlowPost + simStall + simSlack
)

// checkBounds looks for legs that should have ended. interest is what consumers have legs of.
func (e *simEngine) checkBounds(now time.Time, interest map[string]bool) {
	for _, leg := range e.legs {
		if leg.offering && interest[leg.request.x] {
			leg.wanted = now // heartbeats keep the offer alive
		}
		for tp, part := range leg.parts {
			if part.since.IsZero() || part.kind != 0 {
				continue
			}
			bound := part.since.Add(simExpectBound)
			if leg.offering {
				bound = latest(part.since, leg.wanted).Add(simOfferBound)
			}
			if now.After(bound.Add(leg.lost)) {
				e.s.violated("S4", "tag %d on %s has not ended in time", leg.tag, e.ranks[tp].agent)
				leg.lost += time.Hour // once
			}
		}
	}
}

// interest is what consumers wait for.
func (s *sim) interest() map[string]bool {
	clear(s.wanted)
	for _, d := range s.consumers {
		for _, leg := range d.legs {
			s.wanted[leg.request.x] = true
		}
	}
	return s.wanted
}

// checkEmpty finds what an engine still holds after the end of all requests (rule S5).
func (r *simRank) checkEmpty() {
	left := make(chan map[string]int)
	r.post(func(l *loop) { left <- l.tables() })
	for name, n := range <-left {
		if n != 0 {
			r.engine.s.violated("S5", "%s has %d left of %s", r.agent, n, name)
		}
	}
	if n := len(r.events.live) + r.events.waiting(); n != 0 {
		r.engine.s.violated("S5", "%s has %d tags or events left", r.agent, n)
	}
}

// tables is how many entries each table has that requests and peers leave something in.
func (l *loop) tables() map[string]int {
	return map[string]int{
		"expects": len(l.expects), "expects by id": len(l.expectsByID), "expects by epoch": len(l.expectsByEpoch),
		"unwanted": len(l.unwanted), "incoming": l.incoming,
		"offers": len(l.offers), "offers by name": len(l.offersByName), "waiting": l.waiting.size(),
		"demands": len(l.demands), "unmatched": l.unmatched.size(), "declined": l.declined.size(),
		"registrations": len(l.registrations), "past": len(l.past.keys) + len(l.past.queue),
		"writing": l.writing, "posted": len(l.posted),
		"peers": len(l.peers) + len(l.retired), "agents": len(l.agents), "dialing": l.dialing,
	}
}

func (m *meetings[T]) size() int { return len(m.present) + len(m.byBase) + len(m.byTransfer) }
