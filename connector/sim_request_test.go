package connector

import (
	"fmt"
	"time"
)

// simRequest is one request of a client: a producer's leg and a consumer's, and what comes of
// them. A router sends both at once.
type simRequest struct {
	s         *sim
	p, d      *simEngine
	prompt    int
	length    int    // of the prompt in blocks
	x         string // X-Request-Id
	sample    string // "0_" and so on if n > 1
	transfers bool   // the router makes transfer ids
	attempt   int
	consumer  string // the consumer's id of the request, "" before
	calm      simCalm
}

// arrive makes a request now and more of them later.
func (s *sim) arrive() {
	if time.Since(s.trace.start) > s.traffic {
		return
	}
	s.requests++
	r := &simRequest{s: s, p: s.producers[s.rng.IntN(len(s.producers))], d: s.consumers[s.rng.IntN(len(s.consumers))],
		prompt: s.requests, length: 1 + s.rng.IntN(5), x: fmt.Sprint("x", s.requests), transfers: s.rng.IntN(2) == 0}
	if !s.rates.calm {
		switch s.rng.IntN(8) {
		case 0: // ids that differ in the suffix only: the router must tell them apart
			if r.transfers && s.lastX != "" {
				r.x = s.lastX
			}
		case 1: // n > 1: two requests of one prompt
			twin := *r
			r.sample, twin.sample = "0_", "1_"
			twin.dispatch()
		}
	}
	if s.lastX = ""; r.transfers {
		s.lastX = r.x
	}
	s.all = append(s.all, r)
	r.dispatch()
	s.after(upTo(s.rng, s.pace), s.arrive)
}

func (r *simRequest) transfer() string {
	if !r.transfers {
		return ""
	}
	return fmt.Sprintf("t%d%s.%d", r.prompt, r.sample, r.attempt)
}

// id is one that an engine makes up from the client's.
func (r *simRequest) id() string {
	return fmt.Sprintf("%scmpl-%s-0-%08x", r.sample, r.x, r.s.rng.Uint32())
}

// dispatch sends both legs.
func (r *simRequest) dispatch() {
	s := r.s
	r.attempt++
	if r.consumer == "" || s.rng.IntN(2) == 0 {
		r.consumer = r.id()
	}
	s.tell("router", "prompt %d, %d blocks, attempt %d, from %s to %s", r.prompt, r.length, r.attempt, r.p.name, r.d.name)
	s.after(r.delay(), r.decode)
	switch n := s.rng.IntN(16); {
	case n == 0: // the leg is lost
		r.calm.never = true
	case n == 1:
		s.after(r.delay(), r.decline)
	default:
		s.after(r.delay(), func() { r.prefill(1) })
	}
}

// delay until a leg gets to its engine's workers.
func (r *simRequest) delay() time.Duration {
	if r.s.rng.IntN(6) == 0 {
		return upTo(r.s.rng, simLease*3/2)
	}
	return upTo(r.s.rng, 40*time.Millisecond)
}

// decode is the consumer's leg.
func (r *simRequest) decode() {
	if !r.d.up() {
		return
	}
	s := r.s
	leg := r.d.open(r, false, r.consumer)
	if s.rng.Float64() < s.rates.dead {
		s.tally.fault("dead address")
		leg.withoutPeer = true
	}
	r.calm.expects = append(r.calm.expects, leg)
	if s.rng.IntN(3) == 0 { // it waits for blocks, and tells so
		leg.announced = true
		leg.submit(func() Step { return Step{Expects: []Expect{leg.expect(nil)}} })
		s.after(upTo(s.rng, simLease), func() { r.begin(leg) })
	} else {
		r.begin(leg)
	}
	if s.rng.IntN(4) == 0 {
		s.after(between(s.rng, 0, 150*time.Millisecond), leg.cancel)
	}
}

// begin gives the consumer's leg blocks for what is not in the prefix cache.
func (r *simRequest) begin(leg *simLeg) {
	s := r.s
	if leg.over {
		return
	}
	if s.rng.IntN(4) == 0 {
		leg.first = s.rng.IntN(r.length + 1)
	}
	leg.allocate(r.length-leg.first, func() {
		s.tell(r.d.name, "expects tag %d, id %s, transfer %q from %s in blocks %v", leg.tag, leg.id, leg.transfer, r.p.name, leg.blocks)
		leg.submit(func() Step { return Step{Expects: []Expect{leg.expect(BlockIDs{leg.blocks})}} })
	})
	if s.rng.IntN(10) == 0 { // preempted and scheduled again, under the same id
		s.after(upTo(s.rng, 100*time.Millisecond)*time.Duration(s.rng.IntN(2)), func() {
			if !leg.over && r.d.up() && r.consumer == leg.id {
				again := r.d.open(r, false, leg.id)
				again.transfer = leg.transfer
				r.calm.again = again
				r.begin(again)
			}
		})
	}
}

func (leg *simLeg) expect(blocks BlockIDs) Expect {
	from := leg.request.p.endpoint()
	if leg.withoutPeer {
		from.Port = simDeadPort
	}
	return Expect{Tag: leg.tag, RequestID: leg.id, TransferID: leg.transfer, RemoteRequestID: leg.request.x, Producer: from, Blocks: blocks}
}

// prefill is the producer's leg, which may be aborted and come again.
func (r *simRequest) prefill(tries int) {
	if !r.p.up() {
		return
	}
	s := r.s
	leg := r.p.open(r, true, r.id())
	r.calm.offers = append(r.calm.offers, leg)
	leg.allocate(r.length, func() {
		s.tell(r.p.name, "offers tag %d, id %s, transfer %q in blocks %v", leg.tag, leg.id, leg.transfer, leg.blocks)
		leg.submit(func() Step {
			return Step{Offers: []Offer{{Tag: leg.tag, RequestID: leg.id, TransferID: leg.transfer, Blocks: BlockIDs{leg.blocks}, Tokens: uint64(r.length)}}}
		})
	})
	if s.rng.IntN(8) == 0 {
		s.after(upTo(s.rng, 100*time.Millisecond), func() {
			leg.cancel()
			if tries > 0 && !s.rates.calm && s.rng.IntN(2) == 0 {
				r.prefill(tries - 1)
			}
		})
	}
}

// decline is a producer's leg that has failed before it was offered.
func (r *simRequest) decline() {
	if !r.p.up() {
		return
	}
	r.calm.declined = time.Now()
	r.s.tell(r.p.name, "declines %s", r.x)
	step := Step{Declines: []Decline{{RequestID: r.id(), TransferID: r.transfer(), Why: "aborted"}}}
	for _, rank := range r.p.ranks {
		r.p.step(rank, func() {
			rank.post(func(*loop) { rank.seen.command(step) })
			_ = rank.Submit(step)
		})
	}
}

// ended goes on when all ranks have reported a leg.
func (r *simRequest) ended(leg *simLeg) {
	s := r.s
	if leg.offering {
		leg.close()
		return
	}
	if leg.failed {
		leg.close()
		if !s.rates.calm && r.attempt < 4 && s.rng.IntN(3) > 0 && time.Since(s.trace.start) < s.traffic {
			s.after(upTo(s.rng, 5*time.Millisecond)*time.Duration(s.rng.IntN(2)), r.dispatch)
		}
		return
	}
	ranks, life := r.d.ranks, r.d.lives
	s.after(upTo(s.rng, 40*time.Millisecond), func() { // it is decoded
		if r.d.lives != life || !r.d.up() || leg.over {
			return
		}
		for _, rank := range ranks {
			if !leg.whole(rank) {
				s.violated("S1", "the blocks of tag %d on %s were written after it was received", leg.tag, rank.agent)
			}
		}
		leg.close()
	})
}
