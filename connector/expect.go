package connector

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nixlpush/nixlpush/notify"
)

// expectation is D's side of a request. docs/protocol.md has its states.
type expectation struct {
	Expect
	since    time.Time
	deadline time.Time // zero while only announced
	peer     *peer
	epoch    uint64 // of its registration; 0 while there is none
	arrivals *notify.Arrivals
	// writers are the agents that were told and may write, now or later.
	writers  map[string]struct{}
	incoming bool     // a producer has begun to write
	ending   *failure // why it fails once nobody writes any more
	fence    time.Time
	nextAsk  time.Time // for the writers to stop
}

// told reports whether a producer may know of it.
func (ex *expectation) told() bool { return ex.epoch > 0 }

// writtenBy reports whether an agent may write it.
func (ex *expectation) writtenBy(agent string) bool {
	_, ok := ex.writers[agent]
	return ok
}

// expect takes in one entry of a step.
func (l *loop) expect(x Expect) {
	now := time.Now()
	ex := l.expects[x.Tag]
	if ex == nil {
		ex = &expectation{since: now}
		l.expects[x.Tag] = ex
	} else {
		ex.peer.release() // it may have been restarted since the announcement
	}
	l.unwanted = slices.DeleteFunc(l.unwanted, func(old *expectation) bool { return old.RequestID == x.RequestID })
	p := l.peerAt(keyOf(x.Producer))
	p.users++
	ex.peer, ex.Expect = p, x
	if len(x.Blocks) > 0 {
		ex.since = now
		ex.deadline = now.Add(l.cfg.ReceiveTimeout)
		ex.fence = ex.deadline
		ex.arrivals = notify.NewArrivals(l.cfg.TPSize, x.Producer.PPSize, x.Producer.TPSize)
		if other := l.expectsByID[x.RequestID]; other != nil && !l.replace(other) {
			l.failExpect(ex, failf(ReasonCancelled, "an earlier request of the same id has not ended"))
			return
		}
		l.expectsByID[x.RequestID] = ex
	}
	l.connect(p, func(err *failure) {
		if ex.peer == p {
			l.registerWith(ex, err)
		}
	})
}

// replace ends an expectation whose id is wanted for another. It reports false if a producer
// that knows no epochs may still write it: nobody could tell for which of the two.
func (l *loop) replace(other *expectation) bool {
	if other.told() && !other.peer.epochs {
		return false
	}
	l.endExpect(other, failf(ReasonCancelled, "replaced by a later request of the same id"))
	return true
}

// registerWith sends PUSH_REG once the producer is known, if there is still a need.
func (l *loop) registerWith(ex *expectation, err *failure) {
	if l.expects[ex.Tag] != ex || ex.deadline.IsZero() || ex.told() {
		return
	}
	if err != nil {
		l.failExpect(ex, err)
		return
	}
	ex.epoch = l.newEpoch()
	ex.writers = map[string]struct{}{}
	l.expectsByEpoch[ex.epoch] = ex
	left := time.Until(ex.deadline)
	message := l.registration(ex, left-writeMargin(left)).Encode()
	for _, r := range ex.peer.ranks {
		if err := l.send(ex.peer, r.agent, message); err != nil {
			l.endExpect(ex, failf(ReasonUnreachable, "send registration to %s: %w", ex.peer, err))
			return
		}
		ex.writers[r.agent] = struct{}{}
	}
}

// newEpoch is a number that this engine's agent has not used.
func (l *loop) newEpoch() uint64 {
	l.epoch++
	return l.epoch
}

func (l *loop) registration(ex *expectation, ttl time.Duration) *notify.Registration {
	reg := &notify.Registration{
		RequestID:      ex.RequestID,
		TransferID:     ex.TransferID,
		DecodeEngineID: l.cfg.EngineID,
		DecodeHost:     l.cfg.Host,
		DecodePort:     l.cfg.Port,
		DecodeTPSize:   l.cfg.TPSize,
		Blocks:         ex.Blocks,
		RemoteEngineID: ex.Producer.EngineID,
		RemoteHost:     ex.Producer.Host,
		RemotePort:     ex.Producer.Port,
		RemoteTPSize:   ex.Producer.TPSize,
		RemotePPSize:   ex.Producer.PPSize,
		TTL:            ttl,
	}
	if ex.peer.epochs {
		reg.Epoch = ex.epoch
	}
	return reg
}

// writeMargin is the end of D's waiting time in which P must not start a WRITE any more,
// so that one started just before is over when D gives the blocks to another request.
func writeMargin(left time.Duration) time.Duration {
	return min(left/10, time.Second)
}

// writeBegins makes the loop look out for the end of a WRITE more often.
func (l *loop) writeBegins(agent string, epoch uint64) {
	if ex := l.expectsByEpoch[epoch]; ex != nil && ex.writtenBy(agent) && !ex.incoming {
		ex.incoming = true
		l.incoming++
	}
}

// completed takes in the completion of a producer that knows no epochs.
func (l *loop) completed(agent, requestID string, tpSize int) {
	ex := l.expectsByID[requestID]
	if ex != nil && ex.told() && ex.peer.epochs {
		ex = nil // its producer says so with an epoch
	}
	l.arrived(ex, agent, tpSize, slog.String("request", requestID))
}

// done takes in the completion of a registration.
func (l *loop) done(agent string, epoch uint64, tpSize int) {
	l.arrived(l.expectsByEpoch[epoch], agent, tpSize, slog.Uint64("epoch", epoch))
}

// arrived counts one completion; which names its request in log lines.
func (l *loop) arrived(ex *expectation, agent string, tpSize int, which slog.Attr) {
	if ex == nil || !ex.told() {
		l.stats.NotificationsAfterEnd++
		l.log.Debug("completion of a request that is not waiting", which, "from", agent)
		return
	}
	if !ex.peer.has(agent) {
		l.stats.MalformedNotifications++
		l.log.Warn("completion from an agent that is not the producer", which, "from", agent, "producer", ex.peer)
		return
	}
	complete := ex.arrivals.Arrive(agent, tpSize) == notify.Complete
	delete(ex.writers, agent)
	switch {
	case ex.ending != nil:
		l.settleExpect(ex)
	case complete:
		l.dropExpect(ex)
		l.stats.Received++
		l.events.end(Event{Tag: ex.Tag, Kind: Received})
		l.log.Debug("received", "request", ex.RequestID, "from", ex.peer, "waited", time.Since(ex.since))
	}
}

// stopped takes in a producer's word that it does not, and will not, write a registration;
// why is nil if it was asked to.
func (l *loop) stopped(agent string, epoch uint64, why *failure) {
	ex := l.expectsByEpoch[epoch]
	if ex == nil || !ex.writtenBy(agent) {
		return
	}
	if why == nil && ex.ending == nil {
		l.log.Warn("a producer has stopped without having been asked", "request", ex.RequestID, "from", ex.peer)
		why = failf(ReasonPeer, "%s has stopped without having been asked", ex.peer)
	}
	delete(ex.writers, agent)
	if why != nil {
		l.endExpect(ex, why)
		return
	}
	l.settleExpect(ex)
}

// endExpect ends an expectation early, for the first reason of all: at once where nobody can
// write it, else when all who can have stopped, or at its fence.
func (l *loop) endExpect(ex *expectation, why *failure) {
	if ex.ending == nil {
		ex.ending = why
	}
	if now := time.Now(); !now.Before(ex.nextAsk) {
		l.askToStop(ex, now)
	}
	l.settleExpect(ex)
}

// settleExpect reports an expectation that is to end, if nobody writes it any more.
func (l *loop) settleExpect(ex *expectation) {
	if ex.ending != nil && len(ex.writers) == 0 && l.expects[ex.Tag] == ex {
		l.failExpect(ex, ex.ending)
	}
}

// askEvery is how often a producer is asked to stop, until it answers.
const askEvery = 100 * time.Millisecond

// askToStop tells the writers of an expectation to stop, and reports whether any could be
// told. Stock engines cannot.
func (l *loop) askToStop(ex *expectation, now time.Time) (told bool) {
	ex.nextAsk = now.Add(askEvery)
	if !ex.peer.epochs {
		return false
	}
	for agent := range ex.writers {
		if err := l.send(ex.peer, agent, notify.Cancel(ex.epoch)); err != nil {
			l.log.Debug("cancel not sent", "request", ex.RequestID, "to", ex.peer, "why", err)
			continue
		}
		told = true
	}
	return told
}

// cancelExpect ends what the embedder does not want any more.
func (l *loop) cancelExpect(ex *expectation) {
	if !ex.told() && ex.TransferID != "" { // a request id may be that of the next attempt, too
		l.unwanted = append(l.unwanted, ex)
	}
	l.endExpect(ex, failf(ReasonCancelled, "cancelled"))
}

// releaseUnwanted lets producers have the blocks back of requests that nobody waits for. They
// have rested until the next sweep, because a request may be cancelled and come again.
func (l *loop) releaseUnwanted() {
	for _, ex := range l.unwanted {
		l.releaseAt(ex)
	}
	l.unwanted = nil
}

// releaseAt registers for nothing, and forgets it. Stock engines keep the blocks until their
// lease ends.
func (l *loop) releaseAt(ex *expectation) {
	p := l.peerAt(keyOf(ex.Producer))
	l.connect(p, func(err *failure) {
		if err != nil || !p.epochs {
			return
		}
		nothing := *ex
		nothing.epoch, nothing.peer = l.newEpoch(), p
		nothing.Blocks = make(BlockIDs, len(l.limits))
		reg := l.registration(&nothing, l.cfg.ReceiveTimeout)
		reg.Release = true
		message := reg.Encode()
		for _, r := range p.ranks {
			_ = l.send(p, r.agent, message) // without it P's lease ends
		}
	})
}

func (l *loop) failExpect(ex *expectation, why *failure) {
	l.dropExpect(ex)
	if ex.deadline.IsZero() { // only announced: the ledger has forgotten it already
		return
	}
	l.stats.ReceiveFailed++
	l.stats.Failures[why.reason]++
	l.events.end(Event{Tag: ex.Tag, Kind: ReceiveFailed, Reason: why.reason, Message: why.Error()})
	l.log.Warn("receive failed", "request", ex.RequestID, "from", ex.peer, "after", time.Since(ex.since), "why", why)
}

func (l *loop) dropExpect(ex *expectation) {
	delete(l.expects, ex.Tag)
	delete(l.expectsByEpoch, ex.epoch)
	if ex.incoming {
		l.incoming--
	}
	if l.expectsByID[ex.RequestID] == ex {
		delete(l.expectsByID, ex.RequestID)
	}
	ex.peer.release()
}

// How long D waits for producers to stop after the deadline. By then they post no WRITE any
// more, so only one can be under way that has begun before.
const (
	stopWait  = time.Second
	writeWait = 2 * time.Minute // if a WRITE was announced
)

// sweepExpect does what is due.
func (l *loop) sweepExpect(ex *expectation, now time.Time) {
	switch {
	case ex.deadline.IsZero():
	case now.After(ex.fence) && !l.closing: // else loopEnded takes the memory away first
		l.fenceExpect(ex, now)
	case ex.ending != nil && now.After(ex.nextAsk):
		l.askToStop(ex, now)
	}
}

// fenceExpect ends an expectation whose time is over. One that was told is given some more if
// its producers can be asked whether a WRITE is under way.
func (l *loop) fenceExpect(ex *expectation, now time.Time) {
	if ex.ending == nil {
		ex.ending = l.tooLate(ex)
	}
	if late := ex.fence.After(ex.deadline); late || !l.askToStop(ex, now) {
		l.failExpect(ex, ex.ending)
		return
	}
	wait := stopWait
	if ex.incoming {
		wait = min(l.cfg.ReceiveTimeout, writeWait)
	}
	ex.fence = now.Add(wait)
}

// tooLate says why an expectation fails at its deadline.
func (l *loop) tooLate(ex *expectation) *failure {
	what := fmt.Sprintf("no WRITE from %s within %v", ex.peer, l.cfg.ReceiveTimeout)
	if !ex.told() {
		return failf(ReasonUnreachable, "%s: the handshake did not end", what)
	}
	// The producer may have died and come back as another agent: meet it anew.
	ex.peer.broken = true
	return failf(ReasonDeadline, "%s: its prefill did not finish, was aborted, or the engine is gone", what)
}
