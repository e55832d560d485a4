package connector

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
)

// These are schedules that the simulator has found, each by itself.

// delayed holds back the first message that begins so, for each of several beginnings.
func delayed(by map[string]time.Duration) nixltest.Faults {
	return nixltest.Faults{Message: func(m nixltest.Message) []time.Duration {
		for prefix, d := range by {
			if bytes.HasPrefix(m.Payload, []byte(prefix)) {
				delete(by, prefix)
				return []time.Duration{d}
			}
		}
		return []time.Duration{0}
	}}
}

// transferred makes the two legs of a request that has a transfer id.
func (w *world) transferred() (Expect, Offer) {
	return Expect{Tag: 1, RequestID: "cmpl-x-0-0123abcd", TransferID: "t", Producer: w.p.endpoint(), Blocks: BlockIDs{{4}}},
		Offer{Tag: 9, RequestID: "cmpl-x-0-deadbeef", TransferID: "t", Blocks: BlockIDs{{3}}}
}

func TestOfferIsCancelledBeforeItsConsumerRegisters(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.works(100)
		expect, offer := w.transferred()
		w.p.submit(w, Step{Offers: []Offer{offer}})
		w.p.submit(w, Step{Cancels: []uint64{9}})
		w.wants(w.p, time.Second, 9, SendFailed, ReasonCancelled)
		w.d.submit(w, Step{Expects: []Expect{expect}})
		w.wants(w.d, 50*time.Millisecond, 1, ReceiveFailed, ReasonPeer)
		time.Sleep(4 * time.Second) // a lease
		w.empty(w.p, w.d)
	})
}

func TestOfferIsCancelledDuringTheFirstHandshake(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		fetch := w.p.fetch
		w.p.fetch = func(ctx context.Context, host string, port, pp, tp int) ([]byte, error) {
			time.Sleep(300 * time.Millisecond)
			return fetch(ctx, host, port, pp, tp)
		}
		w.offer(9, "x", 3)
		w.expect(1, "x", 4)
		time.Sleep(100 * time.Millisecond)
		w.p.submit(w, Step{Cancels: []uint64{9}})
		w.wants(w.p, time.Second, 9, SendFailed, ReasonCancelled)
		w.wants(w.d, 250*time.Millisecond, 1, ReceiveFailed, ReasonPeer)
		w.empty(w.p, w.d)
	})
}

// TestRegistrationIsOvertaken has P read the registration that was replaced after the one that
// replaces it.
func TestRegistrationIsOvertaken(t *testing.T) {
	inWorld(t, delayed(map[string]time.Duration{"PUSH_REG:": 20 * time.Millisecond, "CANCEL:": 200 * time.Millisecond}), nil, func(w *world) {
		w.p.cache.paint([]uint32{3}, 1)
		w.expect(1, "x", 4)
		time.Sleep(5 * time.Millisecond) // it is on its way
		w.expect(2, "x", 5)
		time.Sleep(50 * time.Millisecond)
		w.offer(9, "x", 3)
		w.wants(w.d, 50*time.Millisecond, 2, Received, ReasonNone)
		w.wants(w.d, 200*time.Millisecond, 1, ReceiveFailed, ReasonCancelled)
		w.wants(w.p, time.Second, 9, Sent, ReasonNone)
		if !w.d.cache.painted([]uint32{5}, 1) {
			t.Error("wrong bytes")
		}
		w.empty(w.p, w.d)
	})
}

// slowOnce is a Transport whose first Create takes a while.
type slowOnce struct {
	nixl.Transport
	delay *atomic.Int64 // nanoseconds
}

func (s slowOnce) Create(op nixl.Op, mem nixl.Mem, local []nixl.Desc, remoteMem nixl.Mem, remote []nixl.Desc, name string, notif []byte) (nixl.Request, error) {
	time.Sleep(time.Duration(s.delay.Swap(0)))
	return s.Transport.Create(op, mem, local, remoteMem, remote, name, notif)
}

// TestReplacedWriteIsWithdrawnLast has the CANCEL of a registration that was replaced come when
// the newer one is written already, and its own WRITE is still being prepared.
func TestReplacedWriteIsWithdrawnLast(t *testing.T) {
	inWorld(t, delayed(map[string]time.Duration{"CANCEL:": 50 * time.Millisecond}), nil, func(w *world) {
		w.p.Close()
		tr, err := w.fabric.Agent("P2")
		if err != nil {
			t.Fatal(err)
		}
		var slow atomic.Int64
		slow.Store(int64(200 * time.Millisecond))
		w.p = startTestEngine(w, w.site, pPort, slowOnce{tr, &slow}, newChanWaker(), nil)
		w.offer(9, "x", 3)
		w.expect(1, "x", 4)
		w.p.until(w, "being prepared", func(s Stats) bool { return s.RegistrationFirst+s.OfferFirst == 1 })
		time.Sleep(10 * time.Millisecond)
		w.expect(2, "x", 5)
		w.wants(w.d, 40*time.Millisecond, 2, Received, ReasonNone)
		w.wants(w.d, 100*time.Millisecond, 1, ReceiveFailed, ReasonCancelled)
		w.wants(w.p, time.Second, 9, Sent, ReasonNone)
		w.empty(w.p, w.d)
	})
}
