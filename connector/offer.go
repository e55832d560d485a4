package connector

import (
	"fmt"
	"time"

	"github.com/nixlpush/nixlpush/notify"
)

// offer is P's side of a request.
type offer struct {
	Offer
	keys     matchKeys
	since    time.Time
	deadline time.Time // of the lease
	reg      *registration
	job      *write // what is being written; nil before
}

// registration is what a consumer asked for, and until when it may be written.
type registration struct {
	*notify.Registration
	keys       matchKeys
	postBefore time.Time
	peer       *peer
}

// offer takes in one entry of a step.
func (l *loop) offer(in Offer) {
	now := time.Now()
	lease := in.Lease
	if lease == 0 {
		lease = l.cfg.Lease
	}
	o := &offer{Offer: in, since: now, deadline: now.Add(lease),
		keys: keysOf(in.TransferID, in.RequestID)}
	l.offers[o.Tag] = o
	if reg, ok := l.registrations.find(o.keys); ok {
		l.stats.RegistrationFirst++
		l.dropRegistration(reg)
		l.push(o, reg)
		return
	}
	l.waiting.add(o)
	for _, name := range o.names() {
		l.offersByName.add(name, o)
	}
}

// names are what a heartbeat may call it.
func (o *offer) names() []string {
	names := notify.LeaseNames(make([]string, 0, 5), o.RequestID)
	if o.TransferID != "" {
		names = append(names, o.TransferID)
	}
	return names
}

// register takes in a consumer's PUSH_REG.
func (l *loop) register(in *notify.Registration) {
	ttl := in.TTL
	if ttl <= 0 {
		ttl = l.cfg.ReceiveTimeout // a stock consumer names none and waits for ever
	}
	reg := &registration{Registration: in, postBefore: time.Now().Add(ttl),
		keys: keysOf(in.TransferID, in.RequestID)}
	if old := l.registrationsByID[in.RequestID]; old != nil {
		l.dropRegistration(old) // sent again: the newest blocks count
	}
	reg.peer = l.peerAt(Endpoint{in.DecodeEngineID, in.DecodeHost, in.DecodePort, in.DecodeTPSize, 1})
	if o, ok := l.waiting.find(reg.keys); ok {
		l.stats.OfferFirst++
		l.stopWaiting(o)
		l.push(o, reg)
		return
	}
	if len(l.registrationsByID) >= maxRegistrations {
		l.log.Error("too many registrations wait for an offer; dropped one", "request", in.RequestID, "from", reg.peer)
		return
	}
	reg.peer.users++
	l.registrations.add(reg)
	l.registrationsByID[in.RequestID] = reg
	l.connect(reg.peer, func(err *failure) { // now, so that it is done when the offer comes
		if err != nil {
			l.log.Warn("a consumer that has registered cannot be reached", "peer", reg.peer, "why", err)
		}
	})
}

// maxRegistrations bounds what strangers can make an engine hold.
const maxRegistrations = 1 << 17

func (l *loop) stopWaiting(o *offer) {
	l.waiting.remove(o)
	for _, name := range o.names() {
		l.offersByName.remove(name, o)
	}
}

func (l *loop) dropRegistration(reg *registration) {
	l.registrations.remove(reg)
	delete(l.registrationsByID, reg.RequestID)
	reg.peer.release()
}

// push writes a matched offer once its consumer is known.
func (l *loop) push(o *offer, reg *registration) {
	o.reg = reg
	matched := time.Now()
	reg.peer.users++
	l.connect(reg.peer, func(err *failure) {
		if l.offers[o.Tag] != o {
			return // cancelled or expired meanwhile
		}
		if err != nil {
			l.endOffer(o, err)
			return
		}
		l.startWrite(o, matched)
	})
}

func (l *loop) startWrite(o *offer, matched time.Time) {
	o.job = &write{
		source:     l.cache,
		have:       o.Blocks,
		want:       o.reg.Blocks,
		tokens:     o.Tokens,
		target:     o.reg.peer.ranks[0],
		notif:      notify.Completion(o.reg.RequestID, l.cfg.TPSize),
		matched:    matched,
		postBefore: o.reg.postBefore,
		transport:  l.nixl,
	}
	job := o.job
	l.writing++
	l.writers.submit(job, func() { l.post(func(l *loop) { l.written(o, job) }) })
	l.announceWrite(o)
}

// announceWrite tells the consumer, while a writer thread prepares the WRITE.
func (l *loop) announceWrite(o *offer) {
	for _, r := range o.reg.peer.ranks {
		if !r.hearsWriting {
			continue
		}
		if err := l.nixl.Notify(r.agent, notify.Writing(o.reg.RequestID)); err != nil {
			l.stats.FailedNotifications++
			l.log.Debug("begin of a WRITE not told", "request", o.RequestID, "to", o.reg.peer, "why", err)
		}
	}
}

// written continues after a writer has dealt with the job.
func (l *loop) written(o *offer, w *write) {
	l.writing--
	if w.failed != nil {
		if w.failed.reason == ReasonWriteFailed {
			o.reg.peer.broken = true
		}
		if l.offers[o.Tag] == o {
			l.endOffer(o, w.failed)
		}
		return
	}
	if w.done {
		l.finishWrite(o, w, nil)
		return
	}
	l.posted[w] = o
}

// finishWrite is called once per posted WRITE, when it is over.
func (l *loop) finishWrite(o *offer, w *write, err error) {
	took := time.Since(w.postedAt)
	if rerr := w.release(); rerr != nil {
		l.log.Error("release of a finished WRITE", "request", o.RequestID, "why", rerr)
	}
	if err != nil {
		o.reg.peer.broken = true
		l.endOffer(o, failf(ReasonWriteFailed, "WRITE to %s: %w", o.reg.peer, err))
		return
	}
	l.stats.Sent++
	l.stats.Bytes += w.bytes
	l.stats.Descriptors += w.descriptors
	l.stats.BlockPairs += w.pairs
	l.dropOffer(o)
	l.events.end(Event{Tag: o.Tag, Kind: Sent, Bytes: w.bytes, Descriptors: w.descriptors, BlockPairs: w.pairs,
		Post: w.post, Write: took, Match: w.postedAt.Sub(w.matched)})
	l.log.Debug("sent", "request", o.RequestID, "to", o.reg.peer, "bytes", w.bytes, "pairs", w.pairs,
		"descriptors", w.descriptors, "match", w.postedAt.Sub(w.matched), "post", w.post, "write", took)
}

// endOffer reports an offer that was not written. It must not be called while a WRITE of
// it may still read the blocks.
func (l *loop) endOffer(o *offer, why *failure) {
	l.dropOffer(o)
	l.stats.SendFailed++
	switch why.reason {
	case ReasonLeaseExpired:
		l.stats.ExpiredOffers++
	case ReasonWriteFailed:
		l.stats.FailedTransfers++
	}
	l.events.end(Event{Tag: o.Tag, Kind: SendFailed, Reason: why.reason, Message: why.Error()})
	l.log.Warn("send failed", "request", o.RequestID, "after", time.Since(o.since), "why", why)
}

func (l *loop) dropOffer(o *offer) {
	delete(l.offers, o.Tag)
	if o.reg != nil {
		o.reg.peer.release()
		return
	}
	l.stopWaiting(o)
}

// abandonOffer ends an offer early unless a WRITE is, or is about to be, posted.
func (l *loop) abandonOffer(o *offer, why *failure) {
	if o.job == nil || o.job.take() {
		l.endOffer(o, why)
	}
}

func (l *loop) expireOffer(o *offer) {
	what := "no consumer registered for it"
	if o.reg != nil {
		what = fmt.Sprintf("%s could not be written to in time", o.reg.peer)
	}
	l.abandonOffer(o, failf(ReasonLeaseExpired, "lease ended after %v: %s", time.Since(o.since).Round(time.Millisecond), what))
}
