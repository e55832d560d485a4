package connector

import (
	"context"
	"runtime"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/notify"
)

// How long the loop rests between two polls. NIXL has no descriptor to wait on, and its
// UCX backend makes no progress unless polled.
const (
	restWriting = 50 * time.Microsecond // a WRITE is posted: its end is to be told at once
	// A producer writes: its end is to be noticed at once, but a large WRITE takes a while.
	restReceiving = 100 * time.Microsecond
	// A peer's message is awaited: the longer it has been, the longer the rest, so that it
	// adds about a hundredth to the wait. A rest costs some 20 µs of a core.
	restWaitingMin = 100 * time.Microsecond
	restWaitingMax = 750 * time.Microsecond
	restIdle       = 10 * time.Millisecond // only what nobody here waits for can come

	sweepEvery = 20 * time.Millisecond  // deadlines, heartbeats, peers
	sweepIdle  = 250 * time.Millisecond // the same when there is no request
)

// loop owns the tables of an engine. All its fields belong to its goroutine.
type loop struct {
	*Engine
	ctx context.Context // ends when the engine closes

	expects        map[uint64]*expectation // by tag
	expectsByID    map[string]*expectation // those with blocks, by request id: the newest
	expectsByEpoch map[uint64]*expectation // those that producers were told of
	unwanted       []*expectation          // cancelled before producers were told
	epoch          uint64                  // the last that was used
	incoming       int                     // expectations that are being written
	nextHeartbeat  time.Time

	offers        map[uint64]*offer // by tag
	waiting       *meetings[*offer]
	declined      *meetings[*decline]
	offersByName  index[*offer]
	demands       map[demandKey]*demand
	unmatched     *meetings[*demand]
	registrations map[registrationKey]*registration // those with epochs
	past          past
	writing       int // handed to the writers and not back yet
	posted        map[*write]*offer

	peers   map[peerKey]*peer
	retired []*peer
	agents  map[string]int // loaded agents: how many peers have them
	dialing int            // handshakes under way

	lastNews      time.Time    // when something last happened
	reads         [2]time.Time // when notifications were begun to be read, last and before
	nextSweep     time.Time
	nextComplaint time.Time
	closing       bool
	drainUntil    time.Time // when closing: producers are waited for until then
	stats         Stats
}

func newLoop(e *Engine, ctx context.Context) *loop {
	return &loop{
		Engine: e, ctx: ctx,
		expects:        map[uint64]*expectation{},
		expectsByID:    map[string]*expectation{},
		expectsByEpoch: map[uint64]*expectation{},
		epoch:          uint64(time.Now().UnixNano()), // so that no two lives of an agent have one in common
		registrations:  map[registrationKey]*registration{},
		past:           past{keys: map[registrationKey]struct{}{}},
		declined:       newMeetings(func(x *decline) matchKeys { return x.keys }),
		offers:         map[uint64]*offer{},
		waiting:        newMeetings(func(o *offer) matchKeys { return o.keys }),
		offersByName:   index[*offer]{},
		demands:        map[demandKey]*demand{},
		unmatched:      newMeetings(func(d *demand) matchKeys { return d.keys }),
		posted:         map[*write]*offer{},
		peers:          map[peerKey]*peer{},
		agents:         map[string]int{},
	}
}

// run is the loop's goroutine. It returns once the engine is closing and nothing is
// under way any more.
func (l *loop) run() {
	runtime.LockOSThread() // NIXL and CUDA keep state per thread
	sharpenTimers()
	var spare []func(*loop)
	for !l.closing || l.writing > 0 || len(l.posted) > 0 || l.dialing > 0 || l.draining() {
		work := l.inbox.take(spare)
		for i, f := range work {
			f(l)
			work[i] = nil
		}
		if work != nil {
			spare = work
		}
		l.reading()
		messages, err := l.nixl.Notifications()
		l.receive(messages, err)
		ended := l.pollWrites()
		now := time.Now()
		l.sweep(now)
		l.publish()
		if work != nil || len(messages) > 0 || ended {
			l.lastNews = now
			if soon := now.Add(sweepEvery); soon.Before(l.nextSweep) {
				l.nextSweep = soon // there may be deadlines again
			}
			continue
		}
		interval, limit := l.rest(now), l.nextSweep.Sub(now)
		if interval == restWriting {
			limit = restWriting // only this loop polls WRITEs
		}
		l.reading()
		l.receive(l.waker.pause(interval, limit, l.inbox.pending))
	}
}

// reading is called before notifications are read.
func (l *loop) reading() { l.reads[0], l.reads[1] = time.Now(), l.reads[0] }

// arrival is when a message that was just read may have arrived at the earliest, if the
// loop has stood still, as in a process that was stopped: what it asks for counts from then on.
func (l *loop) arrival() time.Time {
	now := time.Now()
	if before := l.reads[1]; !before.IsZero() && now.Sub(before) > 2*sweepIdle {
		return before
	}
	return now
}

// rest is how long nothing needs attention.
func (l *loop) rest(now time.Time) time.Duration {
	switch {
	case len(l.posted) > 0:
		return restWriting
	case l.incoming > 0:
		return restReceiving
	case len(l.expectsByID) > 0 || len(l.offers) > 0:
		return min(max(now.Sub(l.lastNews)/100, restWaitingMin), restWaitingMax)
	}
	return restIdle
}

func (l *loop) receive(messages []nixl.Notification, err error) {
	if err != nil {
		l.complain("read notifications", err)
	}
	for _, m := range messages {
		l.lastNews = time.Now()
		l.handle(m)
	}
}

// handle acts on one message of a peer, which may be anything.
func (l *loop) handle(m nixl.Notification) {
	message, err := notify.Decode(m.Payload)
	if err != nil {
		l.stats.MalformedNotifications++
		l.log.Warn("dropped a malformed notification", "from", m.Agent, "bytes", len(m.Payload), "why", err)
		return
	}
	switch message.Kind {
	case notify.KindRegistration:
		l.register(m.Agent, message.Registration)
	case notify.KindCompletion:
		l.completed(m.Agent, message.RequestID, message.TPSize)
	case notify.KindDone:
		l.done(m.Agent, message.Epoch, message.TPSize)
	case notify.KindWriting:
		l.writeBegins(m.Agent, message.Epoch)
	case notify.KindCancel:
		l.withdraw(m.Agent, message.Epoch)
	case notify.KindCancelled:
		l.stopped(m.Agent, message.Epoch, nil)
	case notify.KindFailed:
		l.stopped(m.Agent, message.Epoch, failf(ReasonPeer, "the producer gave it up: %s", message.Reason))
	case notify.KindHeartbeat:
		l.heartbeat(message.IDs)
	default:
		l.log.Debug("ignored a notification of an unknown kind", "from", m.Agent, "bytes", len(m.Payload))
	}
}

// pollWrites asks for the state of every posted WRITE, which is also what makes NIXL
// send the completion.
func (l *loop) pollWrites() (ended bool) {
	for w, o := range l.posted {
		status, err := w.request.Status()
		if err == nil && status == nixl.InProgress {
			continue
		}
		delete(l.posted, w)
		l.finishWrite(o, w, err)
		ended = true
	}
	return ended
}

// sweep does what depends on the time of day.
func (l *loop) sweep(now time.Time) {
	if now.Before(l.nextSweep) {
		return
	}
	l.nextSweep = now.Add(sweepEvery)
	if len(l.expects)+len(l.offers)+len(l.demands) == 0 {
		l.nextSweep = now.Add(sweepIdle)
	}
	for _, ex := range l.expects {
		l.sweepExpect(ex, now)
	}
	l.releaseUnwanted()
	for _, o := range l.offers {
		if now.After(o.deadline) {
			l.expireOffer(o)
		}
	}
	for _, d := range l.demands {
		l.sweepDemand(d, now)
	}
	l.sweepDeclined(now)
	l.past.expire(now)
	l.sendHeartbeats(now)
	l.tidyPeers(now)
}

// step takes in one Submit.
func (l *loop) step(s Step) {
	for _, x := range s.Expects {
		l.expect(x)
	}
	for _, o := range s.Offers {
		l.offer(o)
	}
	for _, d := range s.Declines {
		l.decline(d)
	}
	for _, tag := range s.Cancels {
		l.cancel(tag)
	}
}

func (l *loop) cancel(tag uint64) {
	if ex := l.expects[tag]; ex != nil {
		l.cancelExpect(ex)
	}
	if o := l.offers[tag]; o != nil {
		l.abandonOffer(o, failf(ReasonCancelled, "cancelled"))
	}
}

// drainWait is how long a closing engine waits for producers to stop.
const drainWait = time.Second

// shut lets the loop end: offers that are not being written fail, and producers are asked to
// stop. What is expected from those that do not is left to loopEnded, which first takes the
// memory away from them.
func (l *loop) shut(why *failure) {
	l.closing = true
	l.drainUntil = time.Now().Add(drainWait)
	for _, o := range l.offers {
		l.abandonOffer(o, why)
	}
	for _, ex := range l.expects {
		l.endExpect(ex, why)
	}
}

// draining reports whether producers that can be asked to stop have not answered yet.
func (l *loop) draining() bool {
	if time.Now().After(l.drainUntil) {
		return false
	}
	for _, ex := range l.expects {
		if ex.peer.epochs && len(ex.writers) > 0 {
			return true
		}
	}
	return false
}

// limp is what is left to do in the goroutine of a loop that has panicked: WRITEs that
// are posted still read the host's blocks, so their end is waited for.
func (l *loop) limp() {
	defer func() { _ = recover() }() // a second panic, of the same defect: give up
	for stop := time.Now().Add(closeWait); len(l.posted) > 0 && time.Now().Before(stop); time.Sleep(time.Millisecond) {
		for w := range l.posted {
			if status, err := w.request.Status(); err != nil || status == nixl.Done {
				delete(l.posted, w)
			}
		}
	}
}

// complain logs an error that may come with every poll, once a second.
func (l *loop) complain(what string, err error) {
	if now := time.Now(); now.After(l.nextComplaint) {
		l.nextComplaint = now.Add(time.Second)
		l.log.Error(what, "why", err)
	}
}

// publish makes the counters visible to Stats.
func (l *loop) publish() {
	s := l.stats
	s.Expects, s.Offers = uint64(len(l.expects)), uint64(len(l.offers))
	s.Registrations, s.Writes = uint64(len(l.unmatched.present)), uint64(len(l.posted))
	s.Peers = uint64(len(l.peers) + len(l.retired))
	if s != l.published {
		l.published = s
		l.visible.Store(&s)
	}
}
