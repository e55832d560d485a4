package connector

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
)

// soon is what an end may take that waits for a few messages only.
const soon = 20 * time.Millisecond

func (w *world) cancel(e *testEngine, tag uint64) {
	w.Helper()
	e.submit(w, Step{Cancels: []uint64{tag}})
}

func TestCancelBeforeTheMatch(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.expect(1, "x", 4)
		w.p.until(w, "registered", func(s Stats) bool { return s.Registrations == 1 })
		w.cancel(w.d, 1)
		w.wants(w.d, soon, 1, ReceiveFailed, ReasonCancelled)
		w.empty(w.p, w.d)
		w.works(2)
	})
}

// TestCancelDuringTheWrite is rule S1: the blocks are D's again only when the WRITE has ended.
func TestCancelDuringTheWrite(t *testing.T) {
	inWorld(t, transfers(nixltest.Outcome{Delay: time.Second}), nil, func(w *world) {
		w.p.cache.paint([]uint32{3}, 1)
		w.offer(1, "x", 3)
		w.expect(2, "x", 4)
		w.p.until(w, "posted", func(s Stats) bool { return s.Writes == 1 })
		w.cancel(w.d, 2)
		w.quiet(w.d, 900*time.Millisecond)
		w.wants(w.d, 200*time.Millisecond, 2, ReceiveFailed, ReasonCancelled)
		if !w.d.cache.painted([]uint32{4}, 1) {
			t.Error("reported before the WRITE had landed")
		}
		w.wants(w.p, soon, 1, Sent, ReasonNone)
		w.empty(w.p, w.d)
	})
}

// TestCancelOfAWriteThatFails has an end that carries no completion.
func TestCancelOfAWriteThatFails(t *testing.T) {
	inWorld(t, transfers(nixltest.Outcome{Delay: time.Second, Err: nixl.ErrBackend}), nil, func(w *world) {
		w.offer(1, "x", 3)
		w.expect(2, "x", 4)
		w.p.until(w, "posted", func(s Stats) bool { return s.Writes == 1 })
		w.cancel(w.d, 2)
		w.quiet(w.d, 900*time.Millisecond)
		w.wants(w.d, 200*time.Millisecond, 2, ReceiveFailed, ReasonCancelled)
		w.wants(w.p, soon, 1, SendFailed, ReasonWriteFailed)
		w.empty(w.p, w.d)
	})
}

// TestCancelIsAskedAgain loses the first words of either side.
func TestCancelIsAskedAgain(t *testing.T) {
	for _, prefix := range []string{"CANCEL:", "CANCELLED:"} {
		lost := 0
		faults := nixltest.Faults{Message: func(m nixltest.Message) []time.Duration {
			if lost < 3 && bytes.HasPrefix(m.Payload, []byte(prefix)) {
				lost++
				return nil
			}
			return []time.Duration{0}
		}}
		inWorld(t, faults, nil, func(w *world) {
			w.expect(1, "x", 4)
			time.Sleep(soon)
			w.cancel(w.d, 1)
			w.quiet(w.d, 2*askEvery)
			w.wants(w.d, 3*askEvery, 1, ReceiveFailed, ReasonCancelled)
			w.empty(w.p, w.d)
		})
	}
}

// TestCancelOvertakesTheRegistration which must not be written when it comes.
func TestCancelOvertakesTheRegistration(t *testing.T) {
	faults := nixltest.Faults{Message: func(m nixltest.Message) []time.Duration {
		if bytes.HasPrefix(m.Payload, []byte("PUSH_REG:")) && bytes.Contains(m.Payload, []byte("cmpl-x")) {
			return []time.Duration{time.Second}
		}
		return []time.Duration{0}
	}}
	inWorld(t, faults, nil, func(w *world) {
		w.works(9)
		w.p.cache.paint([]uint32{3}, 1)
		w.expect(1, "x", 4)
		time.Sleep(soon)
		w.cancel(w.d, 1)
		w.wants(w.d, soon, 1, ReceiveFailed, ReasonCancelled)
		w.offer(2, "x", 3)
		w.wants(w.p, 4*time.Second, 2, SendFailed, ReasonLeaseExpired)
		if w.d.cache.painted([]uint32{4}, 1) {
			t.Error("written after all")
		}
		w.empty(w.p, w.d)
	})
}

// TestRetryUnderTheSameID has the first attempt still being written.
func TestRetryUnderTheSameID(t *testing.T) {
	inWorld(t, transfers(nixltest.Outcome{Delay: time.Second}), nil, func(w *world) {
		w.p.cache.paint([]uint32{3}, 1)
		w.offer(1, "x", 3)
		w.expect(2, "x", 4)
		w.p.until(w, "posted", func(s Stats) bool { return s.Writes == 1 })
		w.expect(3, "x", 5)
		w.wants(w.d, soon, 3, Received, ReasonNone)
		if !w.d.cache.painted([]uint32{5}, 1) {
			t.Error("wrong bytes")
		}
		w.quiet(w.d, 900*time.Millisecond)
		w.wants(w.d, 200*time.Millisecond, 2, ReceiveFailed, ReasonCancelled)
		w.wants(w.p, soon, 1, Sent, ReasonNone)
		w.empty(w.p, w.d)
	})
}

// TestRegistrationComesTwice when its request has ended: nothing is left of it.
func TestRegistrationComesTwice(t *testing.T) {
	faults := nixltest.Faults{Message: func(m nixltest.Message) []time.Duration {
		return []time.Duration{0, 500 * time.Millisecond}
	}}
	inWorld(t, faults, nil, func(w *world) {
		w.offer(1, "x", 3)
		w.expect(2, "x", 4)
		w.wants(w.d, time.Second, 2, Received, ReasonNone)
		w.wants(w.p, time.Second, 1, Sent, ReasonNone)
		w.empty(w.p, w.d)
	})
}

// TestDeclineIsToldAtOnce: D need not wait for its deadline.
func TestDeclineIsToldAtOnce(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.works(9)
		w.expect(1, "x", 4)
		w.p.until(w, "registered", func(s Stats) bool { return s.Registrations == 1 })
		w.p.submit(w, Step{Declines: []Decline{{RequestID: "cmpl-x-0-deadbeef", Why: "aborted by its client"}}})
		ev := w.wants(w.d, 10*time.Millisecond, 1, ReceiveFailed, ReasonPeer)
		if !strings.Contains(ev.Message, "aborted by its client") {
			t.Errorf("message %q", ev.Message)
		}
		w.empty(w.p, w.d)
	})
}

func TestDeclineComesFirst(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.p.submit(w, Step{Declines: []Decline{{RequestID: "cmpl-x-0-deadbeef"}}})
		time.Sleep(time.Second)
		w.expect(1, "x", 4)
		w.wants(w.d, soon, 1, ReceiveFailed, ReasonPeer)
		w.p.submit(w, Step{Declines: []Decline{{RequestID: "cmpl-y-0-deadbeef"}}})
		time.Sleep(4 * time.Second) // a lease
		w.empty(w.p, w.d)
	})
}

// TestDeclineReachesAllRanks, those that register later, too.
func TestDeclineReachesAllRanks(t *testing.T) {
	inFleet(t, twoHeads, side{}, side{tp: 2}, nixltest.Faults{}, func(f *fleet) {
		r := f.request(40)
		f.expect(f.d[0], r)
		f.p[0].until(t, "registered", func(s Stats) bool { return s.Registrations == 1 })
		f.p[0].submit(t, Step{Declines: []Decline{{RequestID: "cmpl-" + r.id + "-0-deadbeef"}}})
		f.wants(f.d[0].testEngine, soon, r.tag, ReceiveFailed, ReasonPeer)
		f.expect(f.d[1], r)
		f.wants(f.d[1].testEngine, soon, r.tag, ReceiveFailed, ReasonPeer)
		f.empty()
	})
}

// TestReleaseByTransferID gives P its blocks back when D needs nothing, in either order.
func TestReleaseByTransferID(t *testing.T) {
	for _, offerFirst := range []bool{true, false} {
		inWorld(t, nixltest.Faults{}, nil, func(w *world) {
			announce := Expect{Tag: 1, RequestID: "cmpl-x-0-0123abcd", TransferID: "t", Producer: w.p.endpoint()}
			offer := Offer{Tag: 2, RequestID: "cmpl-x-0-deadbeef", TransferID: "t", Blocks: BlockIDs{{3}}}
			w.d.submit(w, Step{Expects: []Expect{announce}})
			if offerFirst {
				w.p.submit(w, Step{Offers: []Offer{offer}})
			}
			time.Sleep(100 * time.Millisecond)
			w.cancel(w.d, 1)
			if !offerFirst {
				time.Sleep(100 * time.Millisecond)
				w.p.submit(w, Step{Offers: []Offer{offer}})
			}
			if ev := w.wants(w.p, 2*sweepEvery, 2, Sent, ReasonNone); ev.Bytes != 0 {
				t.Errorf("%+v", ev)
			}
			w.empty(w.p, w.d)
		})
	}
}

// TestCloseWaitsForProducers: D's memory is not given back under a WRITE that can be waited for.
func TestCloseWaitsForProducers(t *testing.T) {
	inWorld(t, transfers(nixltest.Outcome{Delay: 500 * time.Millisecond}), nil, func(w *world) {
		w.p.cache.paint([]uint32{3}, 1)
		w.offer(1, "x", 3)
		w.expect(2, "x", 4)
		w.p.until(w, "posted", func(s Stats) bool { return s.Writes == 1 })
		began := time.Now()
		if err := w.d.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 400*time.Millisecond || took > drainWait {
			t.Errorf("closed after %v", took)
		}
		if !w.d.cache.painted([]uint32{4}, 1) {
			t.Error("the memory was taken away under the WRITE")
		}
		w.wants(w.p, soon, 1, Sent, ReasonNone)
	})
}

// TestFenceOfAWriteThatNeverEnds fails the request in bounded time, longer than one that was
// never begun.
func TestFenceOfAWriteThatNeverEnds(t *testing.T) {
	shorter := func(c *Config) { c.ReceiveTimeout = 2 * time.Second }
	inWorld(t, transfers(nixltest.Outcome{Never: true}), shorter, func(w *world) {
		w.offer(1, "x", 3)
		w.expect(2, "x", 4)
		w.quiet(w.d, 3900*time.Millisecond) // twice the 2 s, as a WRITE was announced
		w.wants(w.d, 200*time.Millisecond, 2, ReceiveFailed, ReasonDeadline)
		w.fabric.Kill("D") // so that P's WRITE can fail
		w.wants(w.p, time.Second, 1, SendFailed, ReasonWriteFailed)
	})
}
