package connector

import (
	"fmt"
	"time"

	"github.com/nixlpush/nixlpush/notify"
)

// expectation is D's side of a request.
type expectation struct {
	Expect
	since     time.Time
	deadline  time.Time // zero while only announced
	sent      bool      // PUSH_REG is on its way: the producer may write from now on
	incoming  bool      // the producer has begun to write
	cancelled bool
	peer      *peer
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
	p := l.peerAt(keyOf(x.Producer))
	p.users++
	ex.peer, ex.Expect = p, x
	if len(x.Blocks) > 0 {
		ex.since = now
		ex.deadline = now.Add(l.cfg.ReceiveTimeout)
		if other := l.expectsByID[x.RequestID]; other != nil {
			if other.sent { // it may still be written, and nobody could tell for which of the two
				l.failExpect(ex, failf(ReasonCancelled, "an earlier request of the same id has not ended"))
				return
			}
			l.failExpect(other, failf(ReasonCancelled, "replaced by a later request of the same id"))
		}
		l.expectsByID[x.RequestID] = ex
		l.arrivals.Expect(x.RequestID, x.Producer.PPSize, x.Producer.TPSize)
	}
	l.connect(p, func(err *failure) {
		if ex.peer == p {
			l.registerWith(ex, err)
		}
	})
}

// registerWith sends PUSH_REG once the producer is known, if there is still a need.
func (l *loop) registerWith(ex *expectation, err *failure) {
	if l.expects[ex.Tag] != ex || ex.deadline.IsZero() || ex.sent {
		return
	}
	if err != nil {
		l.failExpect(ex, err)
		return
	}
	left := time.Until(ex.deadline)
	reg := notify.Registration{
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
		TTL:            left - writeMargin(left),
	}
	message := reg.Encode()
	for _, r := range ex.peer.ranks {
		if err := l.nixl.Notify(r.agent, message); err != nil {
			l.stats.FailedNotifications++
			ex.peer.broken = true
			err := failf(ReasonUnreachable, "send registration to %s: %w", ex.peer, err)
			if ex.sent { // a rank that was told may write: the blocks stay reserved
				l.log.Warn("not every rank was told; the request will end at its deadline", "request", ex.RequestID, "why", err)
				return
			}
			l.failExpect(ex, err)
			return
		}
		ex.sent = true
	}
}

// writeMargin is the end of D's waiting time in which P must not start a WRITE any more,
// so that one started just before is over when D gives the blocks to another request.
func writeMargin(left time.Duration) time.Duration {
	return min(left/10, time.Second)
}

// writeBegins makes the loop look out for the end of a WRITE more often. It decides
// nothing else, so a word too much or too little does no harm.
func (l *loop) writeBegins(agent, requestID string) {
	if ex := l.expectsByID[requestID]; ex != nil && ex.peer.has(agent) && !ex.incoming {
		ex.incoming = true
		l.incoming++
	}
}

// completed counts one completion notification.
func (l *loop) completed(agent, requestID string, tpSize int) {
	ex := l.expectsByID[requestID]
	if ex == nil {
		l.stats.NotificationsAfterEnd++
		l.log.Warn("completion of a request that is not waiting", "request", requestID, "from", agent)
		return
	}
	if !ex.peer.has(agent) {
		l.stats.MalformedNotifications++
		l.log.Warn("completion from an agent that is not the producer", "request", requestID, "from", agent, "producer", ex.peer)
		return
	}
	if l.arrivals.Arrive(requestID, agent, tpSize) != notify.Done {
		return
	}
	if ex.cancelled {
		l.failExpect(ex, failf(ReasonCancelled, "cancelled; the producer had written it already"))
		return
	}
	l.dropExpect(ex)
	l.stats.Received++
	l.events.end(Event{Tag: ex.Tag, Kind: Received})
	l.log.Debug("received", "request", ex.RequestID, "from", ex.peer, "waited", time.Since(ex.since))
}

// cancelExpect ends an expectation early where no WRITE can come any more; where one
// can, the blocks stay reserved until it has come or the deadline has passed.
func (l *loop) cancelExpect(ex *expectation) {
	if ex.sent {
		ex.cancelled = true
		return
	}
	l.failExpect(ex, failf(ReasonCancelled, "cancelled before the producer was told"))
}

func (l *loop) failExpect(ex *expectation, why *failure) {
	l.dropExpect(ex)
	if ex.deadline.IsZero() { // only announced: the ledger has forgotten it already
		return
	}
	l.stats.ReceiveFailed++
	l.events.end(Event{Tag: ex.Tag, Kind: ReceiveFailed, Reason: why.reason, Message: why.Error()})
	l.log.Warn("receive failed", "request", ex.RequestID, "from", ex.peer, "after", time.Since(ex.since), "why", why)
}

func (l *loop) dropExpect(ex *expectation) {
	delete(l.expects, ex.Tag)
	if ex.incoming {
		l.incoming--
	}
	if l.expectsByID[ex.RequestID] == ex {
		delete(l.expectsByID, ex.RequestID)
		l.arrivals.Forget(ex.RequestID)
	}
	ex.peer.release()
}

// expireExpect fails an expectation whose deadline has passed.
func (l *loop) expireExpect(ex *expectation) {
	what := fmt.Sprintf("no WRITE from %s within %v", ex.peer, l.cfg.ReceiveTimeout)
	switch {
	case ex.cancelled:
		l.failExpect(ex, failf(ReasonCancelled, "cancelled; %s", what))
	case !ex.sent:
		l.failExpect(ex, failf(ReasonUnreachable, "%s: the handshake did not end", what))
	default:
		// The producer may have died and come back as another agent: meet it anew.
		ex.peer.broken = true
		l.failExpect(ex, failf(ReasonDeadline, "%s: its prefill did not finish, was aborted, or the engine is gone", what))
	}
}
