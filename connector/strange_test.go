package connector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
	"github.com/nixlpush/nixlpush/notify"
)

// A tag is free once its announcement was cancelled (the header: "ends at once, without an event").
func TestCancelledAnnouncementFreesItsTag(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.works(1000)
		for i := range 100 {
			tag := uint64(i + 1)
			id := fmt.Sprintf("cmpl-c%d-0-0123abcd", i)
			w.d.submit(w, Step{Expects: []Expect{{Tag: tag, RequestID: id, Producer: w.p.endpoint()}}})
			w.d.submit(w, Step{Cancels: []uint64{tag}})
			w.d.submit(w, Step{Expects: []Expect{{Tag: tag, RequestID: id, Producer: w.p.endpoint(), Blocks: BlockIDs{{4}}}}})
			w.offer(tag, fmt.Sprintf("c%d", i), 3)
			w.wants(w.d, 12*time.Second, tag, Received, ReasonNone)
			w.wants(w.p, time.Second, tag, Sent, ReasonNone)
		}
		w.empty(w.p, w.d)
	})
}

func TestCancelledAnnouncementCanBeAnnouncedAgain(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		for range 100 {
			w.d.submit(w, Step{Expects: []Expect{{Tag: 1, RequestID: "a", Producer: w.p.endpoint()}}})
			w.d.submit(w, Step{Cancels: []uint64{1}})
		}
	})
}

// The peer of an announcement is found out anew when the blocks come.
func TestAnnouncedPeerHasRestarted(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.works(1000)
		w.d.submit(w, Step{Expects: []Expect{{Tag: 1, RequestID: "cmpl-x-0-0123abcd", Producer: w.p.endpoint()}}})
		time.Sleep(time.Second) // a heartbeat
		w.fabric.Kill("P")
		w.p = w.engine("P2", pPort, func(c *Config) {})
		time.Sleep(3 * time.Second) // heartbeats fail: the peer is known to be broken
		w.expect(1, "x", 4)
		w.offer(2, "x", 3)
		w.wants(w.d, 12*time.Second, 1, Received, ReasonNone)
	})
}

func TestAnnouncedProducerChanges(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		q := w.engine("Q", 7003, nil)
		w.d.submit(w, Step{Expects: []Expect{{Tag: 1, RequestID: "cmpl-x-0-0123abcd", Producer: w.p.endpoint()}}})
		time.Sleep(time.Second)
		w.d.submit(w, Step{Expects: []Expect{{Tag: 1, RequestID: "cmpl-x-0-0123abcd", Producer: q.endpoint(), Blocks: BlockIDs{{4}}}}})
		q.submit(w, Step{Offers: []Offer{{Tag: 7, RequestID: "cmpl-x-0-deadbeef", Blocks: BlockIDs{{3}}}}})
		w.wants(w.d, 12*time.Second, 1, Received, ReasonNone)
	})
}

// S1: an expect whose blocks may still be written is not ended by another of the same id.
func TestReplacedExpectIsStillWritten(t *testing.T) {
	inWorld(t, transfers(nixltest.Outcome{Delay: 2 * time.Second}), nil, func(w *world) {
		w.p.cache.paint([]uint32{3}, 1)
		w.offer(1, "x", 3)
		w.expect(2, "x", 4)
		time.Sleep(time.Second) // being written
		w.expect(3, "x", 5)     // same id
		blocks := map[uint64]uint32{2: 4, 3: 5}
		for range 2 {
			ev := w.d.next(w, 12*time.Second)
			block := blocks[ev.Tag]
			before := bytes.Clone(w.d.cache.block(0, int(block)))
			time.Sleep(3 * time.Second)
			if !bytes.Equal(before, w.d.cache.block(0, int(block))) {
				t.Errorf("block %d was written after %+v", block, ev)
			}
			if ev.Kind == Received && !w.d.cache.painted([]uint32{block}, 1) {
				t.Errorf("%+v, but the block was not written", ev)
			}
		}
	})
}

// stuck is a Transport whose Notifications stands still once, as in a stopped process.
type stuck struct {
	nixl.Transport
	next *atomic.Int64 // nanoseconds
}

func (s stuck) Notifications() ([]nixl.Notification, error) {
	time.Sleep(time.Duration(s.next.Swap(0)))
	return s.Transport.Notifications()
}

// S1: P stands still while a registration arrives.
func TestRegistrationReadLate(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.p.Close()
		tr, err := w.fabric.Agent("P2")
		if err != nil {
			t.Fatal(err)
		}
		var next atomic.Int64
		w.p = startTestEngine(w, w.site, pPort, stuck{tr, &next}, newChanWaker(), nil)
		w.works(1000)
		w.p.cache.paint([]uint32{3}, 1)
		next.Store(int64(12 * time.Second))
		time.Sleep(time.Second) // it stands
		w.expect(2, "x", 4)
		w.wants(w.d, 12*time.Second, 2, ReceiveFailed, ReasonDeadline)
		before := bytes.Clone(w.d.cache.block(0, 4))
		w.offer(1, "x", 3)
		time.Sleep(4 * time.Second)
		if !bytes.Equal(before, w.d.cache.block(0, 4)) {
			t.Errorf("written after D had reported its failure")
		}
	})
}

// A registration that names 290 years is held for ever.
func TestRegistrationForEver(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.works(1000)
		tr, err := w.fabric.Agent("stranger")
		if err != nil {
			t.Fatal(err)
		}
		md, _ := w.p.nixl.Metadata()
		name, err := tr.Load(md)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			r := notify.Registration{RequestID: fmt.Sprint("s", i), DecodeEngineID: fmt.Sprint("nobody", i), DecodeHost: "h", DecodePort: slowPort, DecodeTPSize: 1,
				Blocks: [][]uint32{{1}}, TTL: 290 * 365 * 24 * time.Hour}
			if err := tr.Notify(name, r.Encode()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(500 * time.Millisecond)
		if n := w.p.Stats().Goroutines; n > 90 {
			t.Errorf("%d goroutines for 100 strangers' registrations, each with a connection", n)
		}
		t.Logf("goroutines %d peers %d registrations %d", w.p.Stats().Goroutines, w.p.Stats().Peers, w.p.Stats().Registrations)
		time.Sleep(61 * time.Minute)
		if s := w.p.Stats(); s.Registrations > 0 {
			t.Errorf("after an hour (ReceiveTimeout is 10 s): %d registrations, %d peers", s.Registrations, s.Peers)
		}
		tr.Close()
	})
}

// An announcement whose first handshake failed goes on trying: the lease is to be kept alive.
func TestAnnouncementSurvivesAFailedHandshake(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		var down atomic.Bool
		down.Store(true)
		w.d.fetch = func(ctx context.Context, host string, port, pp, tp int) ([]byte, error) {
			if down.Load() {
				return nil, errors.New("connection refused")
			}
			return w.site.fetch(ctx, host, port, pp, tp)
		}
		w.offer(2, "x", 3)
		w.d.submit(w, Step{Expects: []Expect{{Tag: 1, RequestID: "cmpl-x-0-0123abcd", Producer: w.p.endpoint()}}})
		time.Sleep(200 * time.Millisecond)
		down.Store(false)
		w.quiet(w.p, 6*time.Second) // lease 3 s
	})
}
