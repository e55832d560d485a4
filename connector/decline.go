package connector

import "time"

// decline is P's word that a request it was to prefill will not be offered. It waits for the
// consumer's registration as an offer would.
type decline struct {
	keys  matchKeys
	why   *failure
	until time.Time
}

// decline takes in one entry of a step.
func (l *loop) decline(in Decline) {
	why := failf(ReasonCancelled, "%s ended request %s without KV to send: %s", l.cfg.EngineID, in.RequestID, in.Why)
	keys := keysOf(in.TransferID, in.RequestID)
	d, ok := l.unmatched.find(keys)
	if !ok {
		l.declined.add(&decline{keys, why, time.Now().Add(l.cfg.Lease)})
		return
	}
	l.unmatched.remove(d)
	d.failed = why
	l.connect(d.peer, func(err *failure) { l.consumerMet(d, err) })
}

func (l *loop) sweepDeclined(now time.Time) {
	for x := range l.declined.present {
		if now.After(x.until) {
			l.declined.remove(x)
		}
	}
}
