package connector

import (
	"testing"
	"time"
)

// TestFirstContact has P hold finished blocks when D, which it has never met, registers.
func TestFirstContact(t *testing.T) {
	s := site{}
	p := newTestEngine(t, s, 7001, realTransport(t), nil)
	d := newTestEngine(t, s, 7002, realTransport(t), nil)
	p.submit(t, Step{Offers: []Offer{{Tag: 1, RequestID: "r", Blocks: BlockIDs{{1}}}}})
	p.until(t, "the offer waits", func(s Stats) bool { return s.Offers == 1 })
	start := time.Now()
	d.submit(t, Step{Expects: []Expect{{Tag: 1, RequestID: "r", Producer: p.endpoint(), Blocks: BlockIDs{{2}}}}})
	if ev := d.next(t, 5*time.Second); ev.Kind != Received {
		t.Fatalf("%+v", ev)
	}
	// About 30 ms, most of it NIXL's; `make bench` has the figure. Here: no time-out is in it.
	if took := time.Since(start); took > time.Second {
		t.Errorf("first contact took %v", took)
	}
}
