package connector

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
)

// chanWaker rests on a channel, so that the clock of a synctest bubble can go on.
type chanWaker chan struct{}

func newChanWaker() chanWaker { return make(chanWaker, 1) }

func (w chanWaker) pause(interval, limit time.Duration, ready func() bool) ([]nixl.Notification, error) {
	if ready() {
		return nil, nil
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	select {
	case <-w:
	case <-timer.C:
	}
	return nil, nil
}

func (w chanWaker) wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

func (w chanWaker) close() {}

// world is a fabric with a producer and a consumer, in a bubble of virtual time.
type world struct {
	*testing.T
	fabric *nixltest.Fabric
	site   site
	p, d   *testEngine
}

const (
	pPort = 7001
	dPort = 7002
)

// inWorld runs f with two engines and then checks that both end without a trace.
func inWorld(t *testing.T, faults nixltest.Faults, change func(*Config), f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, fabric: nixltest.NewFabric(faults), site: site{}}
		w.p, w.d = w.engine("P", pPort, change), w.engine("D", dPort, change)
		f(w)
	})
}

func (w *world) engine(name string, port int, change func(*Config)) *testEngine {
	w.Helper()
	tr, err := w.fabric.Agent(name)
	if err != nil {
		w.Fatal(err)
	}
	return startTestEngine(w, w.site, port, tr, newChanWaker(), func(c *Config) {
		c.Lease, c.ReceiveTimeout, c.HandshakeTimeout = 3*time.Second, 10*time.Second, time.Second
		if change != nil {
			change(c)
		}
	})
}

// The two legs of request id, as a router that sends both at once makes them: engines add
// a suffix of their own to the id.
func (w *world) expect(tag uint64, id string, blocks ...uint32) {
	w.Helper()
	w.d.submit(w, Step{Expects: []Expect{{Tag: tag, RequestID: "cmpl-" + id + "-0-0123abcd", Producer: w.p.endpoint(), Blocks: BlockIDs{blocks}}}})
}

func (w *world) offer(tag uint64, id string, blocks ...uint32) {
	w.Helper()
	w.p.submit(w, Step{Offers: []Offer{{Tag: tag, RequestID: "cmpl-" + id + "-0-deadbeef", Blocks: BlockIDs{blocks}}}})
}

// wants checks the next event of an engine.
func (w *world) wants(e *testEngine, limit time.Duration, tag uint64, kind Kind, reason Reason) Event {
	w.Helper()
	ev := e.next(w, limit)
	time.Sleep(time.Millisecond) // the loop makes its counters visible after the event
	if ev.Tag != tag || ev.Kind != kind || ev.Reason != reason {
		w.Fatalf("event %+v, want tag %d, kind %d, reason %d", ev, tag, kind, reason)
	}
	if (ev.Message == "") != (reason == ReasonNone) {
		w.Errorf("reason %d comes with message %q", reason, ev.Message)
	}
	return ev
}

// quiet checks that an engine has nothing to report for a while.
func (w *world) quiet(e *testEngine, d time.Duration) {
	w.Helper()
	time.Sleep(d)
	var out [1]Event
	if e.Poll(out[:]) != 0 {
		w.Fatalf("event %+v, want none", out[0])
	}
}

// empty checks that nothing is left in the tables.
func (w *world) empty(engines ...*testEngine) {
	w.Helper()
	time.Sleep(time.Second)
	for _, e := range engines {
		if s := e.Stats(); s.Expects+s.Offers+s.Registrations+s.Writes+s.Events != 0 {
			w.Errorf("%s holds %+v", e.cfg.EngineID, s)
		}
		if n := e.entries(); n != 0 {
			w.Errorf("%s has %d entries left in its tables", e.cfg.EngineID, n)
		}
	}
}

// entries is how many there are in the tables of requests.
func (e *Engine) entries() int {
	n := make(chan int)
	e.post(func(l *loop) {
		n <- len(l.expects) + len(l.expectsByID) + len(l.expectsByEpoch) + len(l.registrations) + len(l.declined.present) + l.incoming + len(l.offers) + len(l.waiting.present) + len(l.waiting.byBase) +
			len(l.offersByName) + len(l.demands) + len(l.unmatched.present) + len(l.unmatched.byBase) + l.writing + len(l.posted)
	})
	return <-n
}

// consumer is the one that an engine knows, if any.
func (e *Engine) consumer() *peer {
	found := make(chan *peer)
	e.post(func(l *loop) {
		var known *peer
		for key, p := range l.peers {
			if key.consumer {
				known = p
			}
		}
		found <- known
	})
	return <-found
}
