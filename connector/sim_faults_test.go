package connector

import (
	"bytes"
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
	"github.com/nixlpush/nixlpush/notify"
)

// Longest times of what is slow. docs/testing.md says what D's fence assumes of their sums.
const (
	simLate       = 150 * time.Millisecond // a message, and the copy of one: within P's lease
	simSlowWrite  = 250 * time.Millisecond
	simStall      = 1500 * time.Millisecond // a WRITE that never lands ends with an error
	simSlowCreate = 30 * time.Millisecond
	simSlowPost   = 100 * time.Millisecond
)

// simRates is how much goes wrong in a run.
type simRates struct {
	calm bool // nothing does, so that requests must end well and soon
	// stock: no engine knows of epochs, so that less may go wrong: see docs/testing.md.
	stock bool

	lag                        time.Duration // that messages usually have at most
	write                      time.Duration // that WRITEs usually take at most
	drop, double, late         float64       // of messages
	failPost, fail, stall      float64       // of WRITEs
	failCreate                 float64
	slow, slowCreate, slowPost float64
	refuse, garble, hang, dead float64 // of handshakes
	kills, closes, stops, deaf int     // of engines; deaf ones do not poll events
	hangs, cuts                int
	strangers                  int // messages of theirs
}

func newSimRates(r *rand.Rand) simRates {
	if r.IntN(6) == 0 {
		return simRates{calm: true, lag: upTo(r, 2*time.Millisecond), write: upTo(r, 20*time.Millisecond), slowCreate: 0.2 * float64(r.IntN(2)), kills: r.IntN(4)}
	}
	some := func(most float64) float64 { // of a kind of fault, or none
		if r.IntN(3) > 0 {
			return 0
		}
		return most * r.Float64()
	}
	times := func(most int) int { return int(some(float64(most) + 0.99)) }
	rates := simRates{
		lag: upTo(r, 5*time.Millisecond), write: upTo(r, 50*time.Millisecond),
		drop: some(0.3), double: some(0.4), late: some(0.3),
		failCreate: some(0.2), failPost: some(0.3), fail: some(0.3), stall: some(0.1), slow: some(0.6), slowCreate: some(0.6), slowPost: some(0.4),
		refuse: some(0.4), garble: some(0.3), hang: some(0.3), dead: some(0.1),
		kills: times(3), closes: times(2), stops: times(5), deaf: times(3), hangs: times(2), cuts: times(3), strangers: times(80),
	}
	if r.IntN(8) == 0 {
		rates.asStock()
	}
	return rates
}

// asStock leaves out what the stock protocol does not stand.
func (r *simRates) asStock() {
	r.stock = true
	r.write = min(r.write, 20*time.Millisecond)
	r.double, r.late, r.stall, r.slow, r.slowCreate, r.slowPost = 0, 0, 0, 0, 0, 0
	r.stops, r.hangs = 0, 0
}

func upTo(r *rand.Rand, longest time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(longest) + 1))
}

// between is a time from least to most.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + upTo(r, most-least)
}

// dice decides the fate of one thing. It depends on the seed, on what the thing is and on how
// often it has been, but not on what else happens at the same time: so runs of a seed are alike.
func (s *sim) dice(kind, name string, what []byte) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(kind))
	h.Write([]byte(name))
	h.Write(what)
	s.diceMu.Lock()
	defer s.diceMu.Unlock()
	key := h.Sum64()
	s.thrown[key]++
	return rand.New(rand.NewPCG(s.seed, mix(key+s.thrown[key])))
}

// message is the fate of a notification. The fabric is locked.
func (s *sim) message(m nixltest.Message) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent(m)
	what := m.Payload
	if bytes.HasPrefix(what, []byte("HB:")) {
		what = what[:3] // its ids are in no order
	}
	fate, r := s.dice("message", m.From+m.To, what), &s.rates
	if to := s.ranks[m.To]; fate.Float64() < r.drop || to != nil && !to.engine.reaches() {
		s.tally.fault("message lost")
		s.note(m.From, "to %s LOST: %s", m.To, printable(m.Payload))
		return nil
	}
	delays := []time.Duration{upTo(fate, r.lag)}
	if fate.Float64() < r.late {
		s.tally.fault("message late")
		delays[0] = upTo(fate, simLate)
	}
	if fate.Float64() < r.double {
		s.tally.fault("message doubled")
		delays = append(delays, upTo(fate, simLate))
	}
	s.note(m.From, "to %s, arrives in %v: %s", m.To, delays, printable(m.Payload))
	for _, d := range delays {
		if to := s.ranks[m.To]; to != nil {
			to.waker.expect(time.Now().Add(d))
		}
	}
	return delays
}

// transfer is the fate of a WRITE that is being posted. The fabric is locked.
func (s *sim) transfer(t nixltest.Transfer) nixltest.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	fate, r := s.dice("transfer", t.Initiator+t.Target, t.Notif), &s.rates
	o := nixltest.Outcome{Delay: upTo(fate, r.write)}
	if fate.Float64() < r.slow {
		s.tally.fault("WRITE slow")
		o.Delay = upTo(fate, simSlowWrite)
	}
	switch x := fate.Float64(); {
	case x < r.failPost:
		s.tally.fault("WRITE fails at post")
		o.PostErr = nixl.ErrBackend
	case x < r.failPost+r.fail:
		s.tally.fault("WRITE fails later")
		o.Err = nixl.ErrBackend
	case x < r.failPost+r.fail+r.stall:
		s.tally.fault("WRITE stalls")
		o.Delay, o.Err = simStall, nixl.ErrBackend
	}
	s.note(t.Initiator, "WRITE to %s (%s) posted: takes %v, post error %v, error %v", t.Target, t.Notif, o.Delay, o.PostErr, o.Err)
	s.ranks[t.Initiator].waker.expect(time.Now().Add(o.Delay))
	time.AfterFunc(o.Delay, func() { s.fabric.Land(t.Initiator) })
	return o
}

const simDeadPort = 9

// fetch is the side channel between engines.
func (s *sim) fetch(ctx context.Context, from, host string, port, pp, tp int) ([]byte, error) {
	s.mu.Lock()
	e, r := s.byPort[port], &s.rates
	fate := s.dice("fetch", from, []byte{byte(port), byte(tp)})
	s.mu.Unlock()
	wait := upTo(fate, 5*time.Millisecond)
	x := fate.Float64()
	if x < r.hang {
		s.tally.fault("handshake slow")
		wait = upTo(fate, 2*simHandshake)
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(wait):
	}
	if e == nil || !e.up() {
		return nil, errors.New("connection refused")
	}
	if x = fate.Float64(); x < r.refuse {
		s.tally.fault("handshake refused")
		return nil, errors.New("connection refused")
	}
	frame, err := e.rank(tp).Metadata()
	if err == nil && r.stock {
		frame, err = asStock(frame)
	}
	if err == nil && x < r.refuse+r.garble {
		s.tally.fault("handshake garbled")
		frame = append([]byte{}, frame[:fate.IntN(len(frame))]...) // TCP checks what does arrive
	}
	return frame, err
}

// stranger sends an engine what it has no business to: noise, or what others have sent before.
func (s *sim) stranger() {
	s.mu.Lock()
	to := s.engines[s.rng.IntN(len(s.engines))]
	var payload []byte
	if n := len(s.wire); n > 0 && s.rng.IntN(8) > 0 {
		payload = s.wire[s.rng.IntN(n)]
	} else {
		payload = []byte(strings.Repeat(string(rune('a'+s.rng.IntN(26))), s.rng.IntN(100)) + ":1")
	}
	if kinds := []func() []byte{
		func() []byte { return notify.Cancelled(s.anyEpoch()) },
		func() []byte { return notify.Failed(s.anyEpoch(), "so it is") },
		func() []byte { return notify.Cancel(s.anyEpoch()) },
		func() []byte { return notify.Done(s.anyEpoch(), 1) },
	}; s.rng.IntN(2) == 0 {
		payload = kinds[s.rng.IntN(len(kinds))]()
	}
	s.mu.Unlock()
	if !to.up() {
		return
	}
	s.tally.fault("stranger")
	for _, r := range to.ranks {
		metadata, err := r.nixl.Metadata()
		if err != nil {
			continue
		}
		if name, err := s.outsider.Load(metadata); err == nil {
			_ = s.outsider.Notify(name, payload) // it may be refused: nobody cares
		}
	}
}

// anyEpoch is one that a registration has had lately.
func (s *sim) anyEpoch() uint64 {
	if len(s.epochs) == 0 {
		return 1
	}
	return s.epochs[max(0, len(s.epochs)-1-s.rng.IntN(8))]
}
