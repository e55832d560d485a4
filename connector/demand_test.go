package connector

import (
	"strings"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
	"github.com/nixlpush/nixlpush/notify"
)

var twoHeads = testModel{layers: 2, heads: 2}

// TestRankIsWrittenAfterItsOwnRegistration has D's second rank come late: nothing may touch
// its blocks before.
func TestRankIsWrittenAfterItsOwnRegistration(t *testing.T) {
	inFleet(t, twoHeads, side{}, side{tp: 2}, nixltest.Faults{}, func(f *fleet) {
		r := f.request(40)
		f.offerAll(r)
		f.expect(f.d[0], r)
		f.wants(f.d[0].testEngine, time.Second, r.tag, Received, ReasonNone)
		f.quiet(f.p[0].testEngine, 500*time.Millisecond)
		if n := f.d[1].touched(0, nil); n != 0 {
			t.Fatalf("%d blocks of a rank that has not registered were written", n)
		}
		f.expect(f.d[1], r)
		f.wants(f.d[1].testEngine, time.Second, r.tag, Received, ReasonNone)
		f.wants(f.p[0].testEngine, time.Second, r.tag, Sent, ReasonNone)
		f.checkBytes(r)
		f.empty()
	})
}

// TestRankNeverRegisters ends with P's lease; what the rank sends later leaves nothing behind.
func TestRankNeverRegisters(t *testing.T) {
	inFleet(t, twoHeads, side{}, side{tp: 2}, nixltest.Faults{}, func(f *fleet) {
		r := f.request(40)
		f.expect(f.d[0], r)
		f.offerAll(r)
		f.wants(f.d[0].testEngine, time.Second, r.tag, Received, ReasonNone)
		f.quiet(f.p[0].testEngine, 2900*time.Millisecond)
		ev := f.wants(f.p[0].testEngine, 200*time.Millisecond, r.tag, SendFailed, ReasonLeaseExpired)
		if !strings.Contains(ev.Message, "1 of 2 ranks") {
			t.Errorf("message %q", ev.Message)
		}
		if n := f.p[0].entries(); n != 1 {
			t.Errorf("P has %d entries, want one that knows of the missing rank", n)
		}
		f.expect(f.d[1], r)
		time.Sleep(100 * time.Millisecond)
		f.world.empty(f.p[0].testEngine)
		f.wants(f.d[1].testEngine, time.Second, r.tag, ReceiveFailed, ReasonPeer)
		f.wipe()
		next := f.request(40)
		f.offerAll(next)
		f.expectAll(next)
		f.arrives(next)
		f.empty()
	})
}

// TestRankNeverRegistersAtAll is forgotten after another lease.
func TestRankNeverRegistersAtAll(t *testing.T) {
	inFleet(t, twoHeads, side{}, side{tp: 2}, nixltest.Faults{}, func(f *fleet) {
		r := f.request(40)
		f.expect(f.d[0], r)
		f.offerAll(r)
		f.wants(f.p[0].testEngine, 4*time.Second, r.tag, SendFailed, ReasonLeaseExpired)
		f.wants(f.d[0].testEngine, time.Second, r.tag, Received, ReasonNone)
		time.Sleep(3500 * time.Millisecond)
		f.empty()
	})
}

// TestHeartbeatsOfOneRankKeepTheLease has the second rank of D wait for its blocks for longer
// than the lease, while the first has its KV already.
func TestHeartbeatsOfOneRankKeepTheLease(t *testing.T) {
	for _, offerFirst := range []bool{true, false} {
		inFleet(t, twoHeads, side{}, side{tp: 2}, nixltest.Faults{}, func(f *fleet) {
			r := f.request(40)
			f.d[1].submit(t, Step{Expects: []Expect{{Tag: r.tag, RequestID: "cmpl-" + r.id + "-0-0123abcd", Producer: f.endpoint()}}})
			if offerFirst {
				f.offerAll(r)
				time.Sleep(100 * time.Millisecond)
			}
			f.expect(f.d[0], r)
			if !offerFirst {
				time.Sleep(100 * time.Millisecond)
				f.offerAll(r)
			}
			f.wants(f.d[0].testEngine, time.Second, r.tag, Received, ReasonNone)
			f.quiet(f.p[0].testEngine, 8*time.Second)
			f.expect(f.d[1], r)
			f.wants(f.d[1].testEngine, time.Second, r.tag, Received, ReasonNone)
			f.wants(f.p[0].testEngine, time.Second, r.tag, Sent, ReasonNone)
			f.checkBytes(r)
			f.empty()
		})
	}
}

// TestEveryProducerCounts has ranks of P finish one after the other; the last of them has
// nothing to write and only says so.
func TestEveryProducerCounts(t *testing.T) {
	for _, m := range []testModel{{layers: 4, heads: 4}, {layers: 4, latent: true}} {
		inFleet(t, m, side{tp: 2, stages: []int{1, 3}}, side{}, nixltest.Faults{}, func(f *fleet) {
			r := f.request(40)
			f.expectAll(r)
			for _, p := range f.p[:3] {
				f.offer(p, r)
				f.wants(p.testEngine, time.Second, r.tag, Sent, ReasonNone)
				f.quiet(f.d[0].testEngine, 100*time.Millisecond)
			}
			f.offer(f.p[3], r)
			ev := f.wants(f.p[3].testEngine, time.Second, r.tag, Sent, ReasonNone)
			if (ev.Bytes == 0) != m.latent {
				t.Errorf("the last rank has sent %d bytes", ev.Bytes)
			}
			f.wants(f.d[0].testEngine, time.Second, r.tag, Received, ReasonNone)
			f.checkBytes(r)
			f.empty()
		})
	}
}

// TestDoubledMessages has every message arrive twice at about the same time.
func TestDoubledMessages(t *testing.T) {
	faults := nixltest.Faults{Message: func(m nixltest.Message) []time.Duration {
		return []time.Duration{0, 0}
	}}
	inFleet(t, twoHeads, side{tp: 2}, side{tp: 4}, faults, func(f *fleet) {
		for range 3 {
			r := f.request(40)
			f.offerAll(r)
			f.expectAll(r)
			f.arrives(r)
			f.wipe()
		}
		f.empty()
	})
}

// TestStrangersRegistration names an engine that the sender is no rank of. It must neither be
// written to nor take the offer away.
func TestStrangersRegistration(t *testing.T) {
	for _, first := range []bool{true, false} {
		inFleet(t, twoHeads, side{}, side{tp: 2}, nixltest.Faults{}, func(f *fleet) {
			stranger, err := f.fabric.Agent("stranger")
			if err != nil {
				t.Fatal(err)
			}
			defer stranger.Close()
			metadata, _ := f.p[0].nixl.Metadata()
			if _, err := stranger.Load(metadata); err != nil {
				t.Fatal(err)
			}
			r := f.request(40)
			if first {
				f.offerAll(r)
			}
			for range 3 {
				reg := notify.Registration{RequestID: "cmpl-" + r.id + "-0-fffffff" + string(rune('0'+f.random.IntN(10))), DecodeEngineID: "engine-7002",
					DecodeHost: "127.0.0.1", DecodePort: dPort, DecodeTPSize: 2, Blocks: [][]uint32{{1, 2, 3}}}
				if err := stranger.Notify("P0.0", reg.Encode()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(50 * time.Millisecond)
			}
			if !first {
				f.offerAll(r)
			}
			f.expectAll(r)
			f.arrives(r)
			f.empty()
		})
	}
}

// TestOneWriteOfSeveralFails fails the offer as a whole, but only once the other WRITE is over.
func TestOneWriteOfSeveralFails(t *testing.T) {
	for name, bad := range map[string]nixltest.Outcome{
		"at once": {Err: nixl.ErrBackend}, "at post": {PostErr: nixl.ErrBackend}, "later": {Err: nixl.ErrBackend, Delay: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			faults := nixltest.Faults{Transfer: func(tr nixltest.Transfer) nixltest.Outcome {
				if tr.Target == "D0.0" {
					return bad
				}
				return nixltest.Outcome{Delay: 400 * time.Millisecond}
			}}
			inFleet(t, twoHeads, side{}, side{tp: 2}, faults, func(f *fleet) {
				r := f.request(40)
				r.lease = 200 * time.Millisecond
				f.offerAll(r)
				f.expect(f.d[1], r)
				f.p[0].until(t, "posted", func(s Stats) bool { return s.Writes == 1 })
				f.expect(f.d[0], r)
				f.quiet(f.p[0].testEngine, 350*time.Millisecond)
				ev := f.wants(f.p[0].testEngine, 100*time.Millisecond, r.tag, SendFailed, ReasonWriteFailed)
				if s := f.p[0].Stats(); s.SendFailed != 1 || s.Sent != 0 {
					t.Errorf("%+v, stats %+v", ev, s)
				}
				f.wants(f.d[1].testEngine, time.Second, r.tag, Received, ReasonNone)
				f.wants(f.d[0].testEngine, time.Second, r.tag, ReceiveFailed, ReasonPeer)
				f.empty()
			})
		})
	}
}

// TestCancelBetweenRegistrations waits for what is posted, and writes no more.
func TestCancelBetweenRegistrations(t *testing.T) {
	faults := nixltest.Faults{Transfer: func(nixltest.Transfer) nixltest.Outcome { return nixltest.Outcome{Delay: time.Second} }}
	inFleet(t, twoHeads, side{}, side{tp: 2}, faults, func(f *fleet) {
		r := f.request(40)
		f.offerAll(r)
		f.expect(f.d[0], r)
		f.p[0].until(t, "posted", func(s Stats) bool { return s.Writes == 1 })
		f.p[0].submit(t, Step{Cancels: []uint64{r.tag}})
		f.expect(f.d[1], r)
		f.quiet(f.p[0].testEngine, 900*time.Millisecond)
		f.wants(f.p[0].testEngine, 200*time.Millisecond, r.tag, SendFailed, ReasonCancelled)
		f.wants(f.d[0].testEngine, time.Second, r.tag, Received, ReasonNone)
		f.wants(f.d[1].testEngine, time.Second, r.tag, ReceiveFailed, ReasonPeer)
		if n := f.d[1].touched(0, nil); n != 0 {
			t.Errorf("%d blocks were written after all", n)
		}
		f.empty()
	})
}

// TestConsumerRankDies between its registration and the WRITE. The other rank is written, or
// not any more.
func TestConsumerRankDies(t *testing.T) {
	inFleet(t, twoHeads, side{}, side{tp: 2}, nixltest.Faults{}, func(f *fleet) {
		r := f.request(40)
		f.expectAll(r)
		f.p[0].until(t, "registered", func(s Stats) bool { return s.Registrations == 1 })
		time.Sleep(100 * time.Millisecond)
		f.fabric.Kill("D0.1")
		f.offerAll(r)
		f.wants(f.p[0].testEngine, time.Second, r.tag, SendFailed, ReasonWriteFailed)
		if ev := f.d[0].next(t, 11*time.Second); ev.Kind != Received && ev.Reason != ReasonPeer {
			t.Errorf("%+v", ev)
		}
		f.world.empty(f.p[0].testEngine, f.d[0].testEngine)
	})
}

// TestRestartedConsumerIsMetAnew although nothing has failed: it registers as other agents.
func TestRestartedConsumerIsMetAnew(t *testing.T) {
	inFleet(t, twoHeads, side{}, side{tp: 2}, nixltest.Faults{}, func(f *fleet) {
		for _, name := range []string{"again", "and again", ""} {
			r := f.request(40)
			f.expectAll(r)
			f.offerAll(r)
			f.arrives(r)
			if name != "" {
				for _, d := range f.d {
					d.Close()
				}
				f.d = f.engines(name, f.to)
			}
		}
		f.empty()
	})
}

// TestProducerRankDies fails the request on D at its deadline; the next meets the new engine.
func TestProducerRankDies(t *testing.T) {
	inFleet(t, twoHeads, side{tp: 2}, side{}, nixltest.Faults{}, func(f *fleet) {
		r := f.request(40)
		f.expectAll(r)
		f.offer(f.p[0], r)
		f.wants(f.p[0].testEngine, time.Second, r.tag, Sent, ReasonNone)
		f.fabric.Kill("P0.1")
		f.wants(f.d[0].testEngine, 11*time.Second, r.tag, ReceiveFailed, ReasonDeadline)
		for _, p := range f.p {
			p.Close()
		}
		f.p = f.engines("again", f.from)
		f.wipe()
		next := f.request(40)
		f.expectAll(next)
		f.offerAll(next)
		f.arrives(next)
		f.empty()
	})
}
