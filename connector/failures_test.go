package connector

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
)

// transfers makes the first transfer go as told and all others well.
func transfers(first nixltest.Outcome) nixltest.Faults {
	n := 0
	return nixltest.Faults{Transfer: func(nixltest.Transfer) nixltest.Outcome {
		if n++; n == 1 {
			return first
		}
		return nixltest.Outcome{}
	}}
}

// works pushes one request and checks its bytes: the engines are in order.
func (w *world) works(tag uint64) {
	w.Helper()
	id := fmt.Sprint("works", tag)
	w.p.cache.paint([]uint32{30}, byte(tag))
	w.offer(tag, id, 30)
	w.expect(tag, id, 31)
	w.wants(w.d, 3*time.Second, tag, Received, ReasonNone)
	w.wants(w.p, time.Second, tag, Sent, ReasonNone)
	if !w.d.cache.painted([]uint32{31}, byte(tag)) {
		w.Error("wrong bytes")
	}
}

func TestProducerLegNeverComes(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.expect(1, "x", 3)
		w.quiet(w.d, 9900*time.Millisecond)
		ev := w.wants(w.d, 200*time.Millisecond, 1, ReceiveFailed, ReasonDeadline)
		if !strings.Contains(ev.Message, "engine-7001") || !strings.Contains(ev.Message, "10s") {
			t.Errorf("message %q names neither peer nor time", ev.Message)
		}
		w.empty(w.p, w.d)
		w.works(2)
	})
}

func TestConsumerNeverRegisters(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.offer(1, "x", 3)
		w.quiet(w.p, 2900*time.Millisecond)
		w.wants(w.p, 200*time.Millisecond, 1, SendFailed, ReasonLeaseExpired)
		if s := w.p.Stats(); s.ExpiredOffers != 1 {
			t.Errorf("stats %+v", s)
		}
		w.empty(w.p)
	})
}

// TestHeartbeatKeepsTheLease announces a request whose router sent both legs at once: D
// knows only its own id of it.
func TestHeartbeatKeepsTheLease(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.d.submit(w, Step{Expects: []Expect{{Tag: 1, RequestID: "cmpl-x-0-0123abcd", RemoteRequestID: "x", Producer: w.p.endpoint()}}})
		w.offer(2, "x", 3)
		w.quiet(w.p, 8*time.Second) // the lease is 3 s
		w.expect(1, "x", 5)
		w.wants(w.d, time.Second, 1, Received, ReasonNone)
		w.wants(w.p, time.Second, 2, Sent, ReasonNone)
		w.empty(w.p, w.d)
	})
}

func TestAnnouncementEndsSilently(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.d.submit(w, Step{Expects: []Expect{{Tag: 1, RequestID: "a", Producer: w.p.endpoint()}}})
		w.d.submit(w, Step{Cancels: []uint64{1}})
		w.quiet(w.d, time.Second)
		w.empty(w.d)
		w.d.submit(w, Step{Expects: []Expect{{Tag: 1, RequestID: "a", Producer: w.p.endpoint()}}}) // the tag is free again
	})
}

func TestWriteFails(t *testing.T) {
	for name, outcome := range map[string]nixltest.Outcome{
		"at post":  {PostErr: nixl.ErrBackend},
		"at poll":  {Err: nixl.ErrBackend, Delay: time.Millisecond},
		"at once":  {Err: nixl.ErrBackend},
		"no agent": {PostErr: nixl.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, transfers(outcome), nil, func(w *world) {
				w.offer(1, "x", 3)
				w.expect(2, "x", 4)
				w.wants(w.p, time.Second, 1, SendFailed, ReasonWriteFailed)
				suspected := w.p.consumer()
				w.wants(w.d, 20*time.Millisecond, 2, ReceiveFailed, ReasonPeer)
				w.empty(w.p, w.d)
				w.works(3)
				if w.p.consumer() == suspected { // NIXL may have dropped its agent
					t.Error("the consumer was not met anew")
				}
			})
		})
	}
}

// TestLeaseDoesNotEndDuringAWrite is rule S2: blocks are not given back while NIXL reads them.
func TestLeaseDoesNotEndDuringAWrite(t *testing.T) {
	inWorld(t, transfers(nixltest.Outcome{Delay: 6 * time.Second}), nil, func(w *world) {
		w.offer(1, "x", 3)
		w.expect(2, "x", 4)
		w.quiet(w.p, 5900*time.Millisecond)
		w.wants(w.p, 200*time.Millisecond, 1, Sent, ReasonNone)
		w.wants(w.d, time.Second, 2, Received, ReasonNone)
	})
}

// TestNoWriteAfterTheRegistrationRanOut is rule S1: when the offer comes D has given the
// blocks away.
func TestNoWriteAfterTheRegistrationRanOut(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.p.cache.paint([]uint32{3}, 1)
		w.expect(2, "x", 4)
		time.Sleep(9100 * time.Millisecond) // of 10 s, the last second is D's margin
		w.offer(1, "x", 3)
		w.wants(w.d, 2*time.Second, 2, ReceiveFailed, ReasonDeadline)
		w.wants(w.p, 5*time.Second, 1, SendFailed, ReasonLeaseExpired)
		if w.d.cache.painted([]uint32{4}, 1) {
			t.Error("written after all")
		}
	})
}

func TestLostCompletion(t *testing.T) {
	faults := nixltest.Faults{Message: func(m nixltest.Message) []time.Duration {
		if m.From == "P" {
			return nil
		}
		return []time.Duration{0}
	}}
	inWorld(t, faults, nil, func(w *world) {
		w.offer(1, "x", 3)
		w.expect(2, "x", 4)
		w.wants(w.p, time.Second, 1, Sent, ReasonNone)
		w.wants(w.d, 12*time.Second, 2, ReceiveFailed, ReasonDeadline)
		w.empty(w.p, w.d)
	})
}

func TestDoubledAndLateCompletionsCountOnce(t *testing.T) {
	faults := nixltest.Faults{Message: func(m nixltest.Message) []time.Duration {
		return []time.Duration{0, time.Millisecond, time.Second}
	}}
	inWorld(t, faults, nil, func(w *world) {
		w.expect(2, "x", 4)
		w.offer(1, "x", 3)
		w.wants(w.d, time.Second, 2, Received, ReasonNone)
		w.quiet(w.d, 3*time.Second)
		if s := w.d.Stats(); s.Received != 1 || s.NotificationsAfterEnd != 2 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestNoiseFromPeersIsDropped(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.works(1)
		stranger, err := w.fabric.Agent("stranger")
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
		metadata, _ := w.d.nixl.Metadata()
		if _, err := stranger.Load(metadata); err != nil {
			t.Fatal(err)
		}
		w.expect(2, "x", 4)
		time.Sleep(100 * time.Millisecond)
		for _, payload := range []string{
			"", "x", ":", "PUSH_REG:", "PUSH_REG:\xc1\xff", "HB:", "HB:\xff", "some:thing", "PUSH_REG:\x81\xa1a",
			strings.Repeat("z", 1<<20), "PUSH_REG:" + strings.Repeat("\x93", 1<<20),
			"cmpl-x-0-0123abcd:1", // what P would send, from somebody else
			"nobody:1", "cmpl-x-0-0123abcd:99999999999999",
		} {
			if err := stranger.Notify("D", []byte(payload)); err != nil {
				t.Fatal(err)
			}
		}
		w.quiet(w.d, time.Second)
		if s := w.d.Stats(); s.MalformedNotifications < 5 || s.Expects != 1 {
			t.Errorf("stats %+v", s)
		}
		w.offer(2, "x", 3)
		w.wants(w.d, time.Second, 2, Received, ReasonNone)
	})
}

// TestBlockOutOfRangeFromPeer registers blocks that D does not have.
func TestBlockOutOfRangeFromPeer(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.d.limits[0] = 999
		w.expect(1, "x", 998) // our own check is fooled; P's must not be
		w.offer(2, "x", 3)
		ev := w.wants(w.p, time.Second, 2, SendFailed, ReasonIncompatible)
		if !strings.Contains(ev.Message, "out of range") {
			t.Errorf("message %q", ev.Message)
		}
		w.wants(w.d, 20*time.Millisecond, 1, ReceiveFailed, ReasonPeer)
		w.works(3)
	})
}

func TestHandshakeFails(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config) // of D
		reason Reason
		text   []string
	}{
		"hash":    {func(c *Config) { c.CompatHash = "other"; c.Factors = map[string]string{"model": "b"} }, ReasonIncompatible, []string{"ours other", "peer's h", `model: ours "b", theirs "a"`}},
		"address": {func(c *Config) {}, ReasonUnreachable, []string{"connection refused"}},
		"engine":  {func(c *Config) {}, ReasonIncompatible, []string{"engine-7001", "not somebody-else"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nixltest.Faults{}, func(cfg *Config) {
				cfg.Factors = map[string]string{"model": "a"}
				if cfg.Port == dPort {
					c.change(cfg)
				}
			}, func(w *world) {
				to := w.p.endpoint()
				switch name {
				case "address":
					to.Port = 9
				case "engine":
					to.EngineID = "somebody-else"
				}
				w.d.submit(w, Step{Expects: []Expect{{Tag: 1, RequestID: "x", Producer: to, Blocks: BlockIDs{{1}}}}})
				ev := w.wants(w.d, 2*time.Second, 1, ReceiveFailed, c.reason)
				for _, text := range c.text {
					if !strings.Contains(ev.Message, text) {
						t.Errorf("message %q lacks %q", ev.Message, text)
					}
				}
				w.empty(w.d)
				if s := w.d.Stats(); s.FailedHandshakes != 1 || s.Peers != 0 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

// TestDeadPeerDelaysNobody has a peer that never answers beside one that does.
func TestDeadPeerDelaysNobody(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		dead := w.p.endpoint()
		dead.Port = slowPort
		w.d.submit(w, Step{Expects: []Expect{{Tag: 1, RequestID: "dead", Producer: dead, Blocks: BlockIDs{{1}}}}})
		start := time.Now()
		w.works(2)
		if d := time.Since(start); d > 100*time.Millisecond {
			t.Errorf("a dead peer delayed another by %v", d)
		}
		w.wants(w.d, 2*time.Second, 1, ReceiveFailed, ReasonUnreachable)
	})
}

// TestRestartedPeerIsMetAnew kills P and starts it again under the same name and address.
func TestRestartedPeerIsMetAnew(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.works(1)
		w.fabric.Kill("P")
		w.expect(2, "lost", 5)
		w.wants(w.d, 11*time.Second, 2, ReceiveFailed, ReasonUnreachable) // the fabric refuses the notification
		w.p.Close()
		w.p = w.engine("P again", pPort, nil) // agents have random names in earnest
		w.works(3)
		w.empty(w.p, w.d)
	})
}

func TestCancel(t *testing.T) {
	inWorld(t, transfers(nixltest.Outcome{Delay: time.Second}), nil, func(w *world) {
		w.offer(1, "waits", 3)
		w.p.submit(w, Step{Cancels: []uint64{1, 77}})
		w.wants(w.p, time.Second, 1, SendFailed, ReasonCancelled)

		w.offer(2, "writes", 3)
		w.expect(2, "writes", 4)
		w.p.until(w, "posted", func(s Stats) bool { return s.Writes == 1 })
		w.p.submit(w, Step{Cancels: []uint64{2}}) // too late: the WRITE runs to its end
		w.d.submit(w, Step{Cancels: []uint64{2}}) // its blocks are kept until then
		w.quiet(w.d, 500*time.Millisecond)
		w.wants(w.p, time.Second, 2, Sent, ReasonNone)
		w.wants(w.d, time.Second, 2, ReceiveFailed, ReasonCancelled)
		w.empty(w.p, w.d)
	})
}

func TestSubmitIsAllOrNothing(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		good := Offer{Tag: 1, RequestID: "good", Blocks: BlockIDs{{1}}}
		far := w.p.endpoint()
		far.Port = 70000
		big := w.p.endpoint()
		big.TPSize = 1 << 40
		for name, s := range map[string]Step{
			"no id":        {Offers: []Offer{good, {Tag: 2, Blocks: BlockIDs{{1}}}}},
			"long id":      {Offers: []Offer{good, {Tag: 2, RequestID: strings.Repeat("x", 5000), Blocks: BlockIDs{{1}}}}},
			"block id":     {Offers: []Offer{good, {Tag: 2, RequestID: "x", Blocks: BlockIDs{{testBlocks}}}}},
			"groups":       {Offers: []Offer{good, {Tag: 2, RequestID: "x", Blocks: BlockIDs{{1}, {2}}}}},
			"no groups":    {Offers: []Offer{good, {Tag: 2, RequestID: "x"}}},
			"same tag":     {Offers: []Offer{good, good}},
			"tag of other": {Offers: []Offer{good}, Expects: []Expect{{Tag: 1, RequestID: "x", Producer: w.p.endpoint(), Blocks: BlockIDs{{1}}}}},
			"port":         {Offers: []Offer{good}, Expects: []Expect{{Tag: 3, RequestID: "x", Producer: far, Blocks: BlockIDs{{1}}}}},
			"size":         {Offers: []Offer{good}, Expects: []Expect{{Tag: 3, RequestID: "x", Producer: big, Blocks: BlockIDs{{1}}}}},
			"no host":      {Offers: []Offer{good}, Expects: []Expect{{Tag: 3, RequestID: "x", Producer: Endpoint{EngineID: "e", Port: 1}}}},
		} {
			if err := w.p.Submit(s); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.quiet(w.p, 4*time.Second)
		w.p.submit(w, Step{Offers: []Offer{good}})
		if err := w.p.Submit(Step{Offers: []Offer{good}}); !errors.Is(err, ErrInvalid) {
			t.Errorf("a tag in use: %v", err)
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.offer(1, "x", 3)
		w.expect(2, "y", 4)
		time.Sleep(time.Second)
		for _, e := range []*testEngine{w.p, w.d} {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			if err := e.Close(); !errors.Is(err, ErrState) {
				t.Errorf("second close: %v", err)
			}
			if err := e.Submit(Step{}); !errors.Is(err, ErrState) {
				t.Errorf("submit after close: %v", err)
			}
			if n := e.Poll(make([]Event, 1)); n != 0 {
				t.Errorf("%d events after close", n)
			}
		}
	})
}

func TestCloseGivesUpOnAWriteThatNeverEnds(t *testing.T) {
	inWorld(t, transfers(nixltest.Outcome{Never: true}), nil, func(w *world) {
		w.offer(1, "x", 3)
		w.expect(2, "x", 4)
		w.p.until(w, "posted", func(s Stats) bool { return s.Writes == 1 })
		if err := w.p.Close(); err == nil || !strings.Contains(err.Error(), "in flight") {
			t.Errorf("close: %v", err)
		}
		w.fabric.Kill("D") // now it fails, and the loop can end
		time.Sleep(time.Second)
	})
}
