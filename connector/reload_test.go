package connector

import (
	"fmt"
	"testing"
	"time"
)

// TestSuspectedPeerIsMetAgain has a request that P never serves, so that D meets P anew,
// while an older request still uses the first acquaintance. P has not been restarted: to
// NIXL it is one agent throughout.
func TestSuspectedPeerIsMetAgain(t *testing.T) {
	s := site{}
	p := newTestEngine(t, s, 7001, realTransport(t), nil)
	d := newTestEngine(t, s, 7002, realTransport(t), func(c *Config) { c.ReceiveTimeout = 500 * time.Millisecond })
	push := func(tag uint64, blocks int) {
		t.Helper()
		src, dst := make([]uint32, blocks), make([]uint32, blocks)
		for i := range src {
			src[i], dst[i] = uint32(i), uint32(blocks-1-i)
		}
		p.cache.paint(src, byte(tag))
		id := fmt.Sprint("r", tag)
		p.submit(t, Step{Offers: []Offer{{Tag: tag, RequestID: id, Blocks: BlockIDs{src}}}})
		d.submit(t, Step{Expects: []Expect{{Tag: tag, RequestID: id, Producer: p.endpoint(), Blocks: BlockIDs{dst}}}})
		if ev := d.next(t, 3*time.Second); ev.Kind != Received || !d.cache.painted(dst, byte(tag)) {
			t.Fatalf("%+v, or wrong bytes", ev)
		}
		if ev := p.next(t, time.Second); ev.Kind != Sent {
			t.Fatalf("%+v", ev)
		}
	}
	push(1, 3)
	d.submit(t, Step{Expects: []Expect{{Tag: 100, RequestID: "holds on", Producer: p.endpoint()}}})
	for round := range uint64(3) {
		d.submit(t, Step{Expects: []Expect{{Tag: 200 + round, RequestID: "never served", Producer: p.endpoint(), Blocks: BlockIDs{{9}}}}})
		if ev := d.next(t, 3*time.Second); ev.Reason != ReasonDeadline {
			t.Fatalf("%+v", ev)
		}
		push(10+round, testBlocks)
		if round == 1 {
			d.submit(t, Step{Cancels: []uint64{100}}) // now nothing holds on to the first
			time.Sleep(300 * time.Millisecond)
		}
	}
	d.until(t, "one peer left", func(s Stats) bool { return s.Peers == 1 })
}
