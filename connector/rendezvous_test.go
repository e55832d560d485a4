package connector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/nixl/nixltest"
)

func TestEitherSideFirst(t *testing.T) {
	for _, offerFirst := range []bool{true, false} {
		inWorld(t, nixltest.Faults{}, nil, func(w *world) {
			w.p.cache.paint([]uint32{5, 4, 3}, 1)
			if offerFirst {
				w.offer(1, "x", 5, 4, 3)
				time.Sleep(time.Second)
				w.expect(2, "x", 12, 11, 10)
			} else {
				w.expect(2, "x", 12, 11, 10)
				time.Sleep(time.Second)
				w.offer(1, "x", 5, 4, 3)
			}
			w.wants(w.d, time.Second, 2, Received, ReasonNone)
			ev := w.wants(w.p, time.Second, 1, Sent, ReasonNone)
			if !w.d.cache.painted([]uint32{12, 11, 10}, 1) {
				t.Error("wrong bytes")
			}
			if ev.Descriptors != testLayers || ev.BlockPairs != 3*testLayers || ev.Bytes != 3*testLayers*testBlock {
				t.Errorf("sent %+v", ev)
			}
			if s := w.p.Stats(); (s.OfferFirst == 1) != offerFirst || (s.RegistrationFirst == 1) == offerFirst {
				t.Errorf("offer first %v: stats %+v", offerFirst, s)
			}
			w.empty(w.p, w.d)
		})
	}
}

func TestPrefixHitMovesTheTail(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.p.cache.paint([]uint32{7}, 9)
		w.offer(1, "x", 1, 2, 3, 7)
		w.expect(2, "x", 40)
		w.wants(w.d, time.Second, 2, Received, ReasonNone)
		if ev := w.wants(w.p, time.Second, 1, Sent, ReasonNone); ev.Bytes != testLayers*testBlock {
			t.Errorf("sent %+v", ev)
		}
		if !w.d.cache.painted([]uint32{40}, 9) {
			t.Error("wrong bytes")
		}
	})
}

func TestNothingToMoveIsStillAnswered(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.offer(1, "x", 1, 2)
		w.expect(2, "x")
		w.wants(w.d, time.Second, 2, Received, ReasonNone)
		w.wants(w.p, time.Second, 1, Sent, ReasonNone)
	})
}

// TestTransferIDDecides has two dispatches of one request: the router's transfer ids tell
// them apart, the request ids do not.
func TestTransferIDDecides(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		for i := range uint32(2) {
			w.p.cache.paint([]uint32{i}, byte(i+1))
			w.p.submit(w, Step{Offers: []Offer{{Tag: uint64(i), RequestID: fmt.Sprintf("cmpl-x-0-%08x", i), TransferID: fmt.Sprint("t", i), Blocks: BlockIDs{{i}}}}})
		}
		for i := range uint32(2) {
			w.d.submit(w, Step{Expects: []Expect{{Tag: uint64(i), RequestID: fmt.Sprintf("cmpl-x-0-%08x", 16+i), TransferID: fmt.Sprint("t", i),
				Producer: w.p.endpoint(), Blocks: BlockIDs{{20 + i}}}}})
			w.wants(w.d, time.Second, uint64(i), Received, ReasonNone)
			if !w.d.cache.painted([]uint32{20 + i}, byte(i+1)) {
				t.Errorf("dispatch %d got the bytes of the other", i)
			}
		}
	})
}

// TestNewestRegistrationCounts retries a request on D: its newer blocks are written.
func TestNewestRegistrationCounts(t *testing.T) {
	inWorld(t, nixltest.Faults{}, nil, func(w *world) {
		w.p.cache.paint([]uint32{1}, 3)
		w.expect(1, "x", 10)
		w.d.submit(w, Step{Cancels: []uint64{1}})
		w.d.submit(w, Step{Expects: []Expect{{Tag: 2, RequestID: "cmpl-x-0-ffffffff", Producer: w.p.endpoint(), Blocks: BlockIDs{{11}}}}})
		w.wants(w.d, time.Second, 1, ReceiveFailed, ReasonCancelled)
		w.p.until(w, "registered", func(s Stats) bool { return s.Registrations == 1 })
		w.offer(9, "x", 1)
		w.wants(w.d, time.Second, 2, Received, ReasonNone)
		if !w.d.cache.painted([]uint32{11}, 3) {
			t.Error("wrong bytes")
		}
	})
}

// TestManyRequests pushes in random order and with random delays, and checks every byte.
func TestManyRequests(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	faults := nixltest.Chaos{Rand: rand.New(rand.NewPCG(5, 6)), Lag: 5 * time.Millisecond, Slow: 10 * time.Millisecond}.Faults()
	inWorld(t, faults, nil, func(w *world) {
		ids := make([]uint32, testBlocks)
		for i := range ids {
			ids[i] = uint32(i)
		}
		for round := range 60 {
			// Four requests at a time share the cache of each side in a random way.
			rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			src := slices.Clone(ids)
			rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			dst := slices.Clone(ids)
			const n = testBlocks / 4
			for i := range 4 {
				tag, id := uint64(round*4+i), fmt.Sprint(round, "-", i)
				w.p.cache.paint(src[i*n:][:n], byte(tag))
				if rng.IntN(2) == 0 {
					w.offer(tag, id, src[i*n:][:n]...)
					w.expect(tag, id, dst[i*n:][:n]...)
				} else {
					w.expect(tag, id, dst[i*n:][:n]...)
					w.offer(tag, id, src[i*n:][:n]...)
				}
			}
			for range 4 {
				ev := w.d.next(w, time.Second)
				i := int(ev.Tag) - round*4
				if ev.Kind != Received || !w.d.cache.painted(dst[i*n:][:n], byte(ev.Tag)) {
					t.Fatalf("round %d: %+v, or wrong bytes", round, ev)
				}
				if ev := w.p.next(w, time.Second); ev.Kind != Sent {
					t.Fatalf("round %d: %+v", round, ev)
				}
			}
		}
		w.empty(w.p, w.d)
	})
}
