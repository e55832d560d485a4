package connector

import (
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/notify"
)

// simCoverage sees what happens to the requests of one engine, and in which state. All its
// methods are called in the engine's loop, just before the engine acts: by the transport, by the
// log, by functions in the inbox. So production code need not know of it.
type simCoverage struct {
	tally *simTally
	rank  *simRank
	loop  *loop // nil until it runs
	sweep time.Time
}

// cell is one of the tables that are printed.
type cell struct{ machine, state, event string }

func (c *simCoverage) see(machine, state, event string) {
	c.tally.mu.Lock()
	c.tally.cells[cell{machine, state, event}]++
	c.tally.mu.Unlock()
}

func (c *simCoverage) expectation(ex *expectation, event string) {
	state := "none"
	switch {
	case ex == nil:
	case ex.deadline.IsZero():
		state = "announced"
	case !ex.told():
		state = "connecting"
	case ex.ending != nil && ex.fence.After(ex.deadline):
		state = "fenced"
	case ex.ending != nil:
		state = "ending"
	case len(ex.writers) < len(ex.peer.ranks):
		state = "partly"
	case ex.incoming:
		state = "writing"
	default:
		state = "registered"
	}
	c.see("expectation", state, event)
}

func (c *simCoverage) registration(key registrationKey, event string) {
	reg, state := c.loop.registrations[key], "unknown"
	switch {
	case reg == nil && c.loop.past.has(key):
		state = "past"
	case reg == nil:
	case reg.write == nil && reg.demand.offer == nil:
		state = "waiting"
	case reg.write == nil:
		state = "matched"
	case reg.write.claimed.Load():
		state = "posted"
	default:
		state = "queued"
	}
	c.see("registration", state, event)
}

func (c *simCoverage) offer(o *offer, event string) {
	state := "none"
	switch {
	case o == nil:
	case o.failed != nil:
		state = "failing"
	case o.demand == nil:
		state = "waiting"
	case len(o.writes) == 0:
		state = "matched"
	default:
		state = "writing"
	}
	c.see("offer", state, event)
}

// look is called with what the loop has just read.
func (c *simCoverage) look(list []nixl.Notification) {
	if c.loop == nil {
		return
	}
	for _, n := range list {
		if m, err := notify.Decode(n.Payload); err == nil {
			c.message(n.Agent, m)
		}
	}
	if now := time.Now(); !now.Before(c.loop.nextSweep) && c.loop.nextSweep != c.sweep {
		c.sweep = c.loop.nextSweep
		c.timeouts(now)
	}
}

func (c *simCoverage) message(agent string, m notify.Message) {
	l, key := c.loop, registrationKey{agent, m.Epoch}
	told := func(event string) {
		ex := l.expectsByEpoch[m.Epoch]
		if ex != nil && !ex.peer.has(agent) {
			event = "stranger"
		}
		c.expectation(ex, event)
	}
	switch m.Kind {
	case notify.KindWriting:
		told("WRITING")
	case notify.KindDone:
		told("DONE")
	case notify.KindFailed:
		told("FAIL")
	case notify.KindCancelled:
		told("CANCELLED")
	case notify.KindCancel:
		c.registration(key, "CANCEL")
		var o *offer
		if reg := l.registrations[key]; reg != nil && reg.demand.regs[agent] == reg {
			o = reg.demand.offer
		}
		c.offer(o, "CANCEL")
	case notify.KindRegistration:
		c.registrationComes(agent, m.Registration)
	case notify.KindHeartbeat:
		for _, id := range m.IDs {
			named := l.offersByName[id]
			for _, o := range named {
				c.offer(o, "heartbeat")
			}
			if len(named) == 0 {
				c.offer(nil, "heartbeat")
			}
		}
	}
}

func (c *simCoverage) registrationComes(agent string, in *notify.Registration) {
	key := registrationKey{agent, in.Epoch}
	c.registration(key, "the same")
	if d := c.loop.demands[demandKey{in.DecodeEngineID, in.RequestID}]; d != nil {
		if old := d.regs[agent]; old != nil && old.Epoch < in.Epoch {
			c.registration(old.key(), "a newer one")
		}
		c.offer(d.offer, "registration")
	} else {
		o, _ := c.loop.waiting.find(keysOf(in.TransferID, in.RequestID))
		c.offer(o, "registration")
	}
}

// timeouts is called when the loop is about to sweep.
func (c *simCoverage) timeouts(now time.Time) {
	l := c.loop
	for _, ex := range l.expects {
		switch {
		case ex.deadline.IsZero() || !now.After(ex.fence):
		case ex.fence.After(ex.deadline):
			c.expectation(ex, "fence")
		default:
			c.expectation(ex, "deadline")
		}
	}
	for _, o := range l.offers {
		if now.After(o.deadline) {
			c.offer(o, "lease ends")
		}
	}
	for key, reg := range l.registrations {
		if now.After(reg.postBefore) {
			c.registration(key, "ttl ends")
		}
	}
}

// command is called before a step is taken in.
func (c *simCoverage) command(s Step) {
	l := c.loop
	for _, x := range s.Expects {
		c.expectation(l.expects[x.Tag], "expect")
		if other := l.expectsByID[x.RequestID]; other != nil && other.Tag != x.Tag && len(x.Blocks) > 0 {
			c.expectation(other, "replaced")
		}
	}
	for _, tag := range s.Cancels {
		if c.rank.engine.producer {
			c.offer(l.offers[tag], "cancel")
		} else {
			c.expectation(l.expects[tag], "cancel")
		}
	}
	for _, o := range s.Offers {
		c.comes(keysOf(o.TransferID, o.RequestID), "offer")
	}
	for _, d := range s.Declines {
		c.comes(keysOf(d.TransferID, d.RequestID), "decline")
	}
}

func (c *simCoverage) comes(k matchKeys, event string) {
	d, ok := c.loop.unmatched.find(k)
	if !ok {
		c.see("registration", "unknown", event)
		return
	}
	for _, reg := range d.regs {
		c.registration(reg.key(), event)
	}
}

// closing is called before an engine is closed.
func (c *simCoverage) closing() {
	l := c.loop
	for _, ex := range l.expects {
		c.expectation(ex, "close")
	}
	for _, o := range l.offers {
		c.offer(o, "close")
	}
	for key := range l.registrations {
		c.registration(key, "close")
	}
}

// met is called when a handshake has ended, well or not.
func (c *simCoverage) met(p *peer, event string) {
	for _, ex := range c.loop.expects {
		if ex.peer == p {
			c.expectation(ex, event)
		}
	}
	for _, o := range c.loop.offers {
		if o.demand != nil && o.demand.peer == p {
			c.offer(o, event)
		}
	}
}

// wrote is called when the WRITE for a registration has ended.
func (c *simCoverage) wrote(key registrationKey, event string) {
	if reg := c.loop.registrations[key]; reg != nil {
		c.registration(key, event)
		c.offer(reg.demand.offer, event)
	}
}
