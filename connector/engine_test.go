package connector

import (
	"fmt"
	"testing"
	"time"
)

func TestPushOverNIXL(t *testing.T) {
	s := site{}
	p := newTestEngine(t, s, 7001, realTransport(t), nil)
	d := newTestEngine(t, s, 7002, realTransport(t), nil)
	for i, offerFirst := range []bool{false, true, false} {
		src, dst := []uint32{9, 8, 7, 20}, []uint32{3, 2, 1, 40}
		p.cache.paint(src, byte(i))
		id := fmt.Sprintf("cmpl-r%d-0", i)
		expect := Step{Expects: []Expect{{Tag: uint64(i + 1), RequestID: id + "-0123abcd", Producer: p.endpoint(), Blocks: BlockIDs{dst}}}}
		offer := Step{Offers: []Offer{{Tag: uint64(i + 1), RequestID: id + "-deadbeef", Blocks: BlockIDs{src}}}}
		if offerFirst {
			p.submit(t, offer)
			p.until(t, "the offer waits", func(s Stats) bool { return s.Offers == 1 })
			d.submit(t, expect)
		} else {
			d.submit(t, expect)
			p.until(t, "the registration waits", func(s Stats) bool { return s.Registrations == 1 })
			p.submit(t, offer)
		}
		got := d.next(t, 5*time.Second)
		if got.Kind != Received || got.Tag != uint64(i+1) {
			t.Fatalf("D: %+v", got)
		}
		if !d.cache.painted(dst, byte(i)) {
			t.Error("wrong bytes")
		}
		sent := p.next(t, 5*time.Second)
		if sent.Kind != Sent || sent.Bytes != 4*testLayers*testBlock || sent.Descriptors != 2*testLayers || sent.BlockPairs != 4*testLayers {
			t.Errorf("P: %+v", sent)
		}
		t.Logf("match %v post %v write %v", sent.Match, sent.Post, sent.Write)
	}
	p.until(t, "P's counters", func(s Stats) bool {
		return s.OfferFirst == 1 && s.RegistrationFirst == 2 && s.Offers == 0 && s.Registrations == 0
	})
	d.until(t, "D's counters", func(s Stats) bool { return s.Expects == 0 && s.Received == 3 })
}
