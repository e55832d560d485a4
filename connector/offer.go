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
	demand   *demand   // that it serves; nil before
	writes   []*write  // one for each registration that was, or was to be, written
	active   int       // of them, those that may still read the blocks
	failed   *failure  // why it will be reported as failed, once none is active
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
	for _, name := range o.names() {
		l.offersByName.add(name, o)
	}
	l.seek(o)
}

// names are what a heartbeat may call it.
func (o *offer) names() []string {
	names := notify.LeaseNames(make([]string, 0, 5), o.RequestID)
	if o.TransferID != "" {
		names = append(names, o.TransferID)
	}
	return names
}

// seek matches an offer with a demand, or lets it wait for one.
func (l *loop) seek(o *offer) {
	d, ok := l.unmatched.find(o.keys)
	if !ok {
		l.waiting.add(o)
		return
	}
	l.stats.RegistrationFirst++
	l.unmatched.remove(d)
	o.demand, d.offer = d, o
	l.connect(d.peer, func(err *failure) { l.consumerMet(d, err) })
}

// serve writes to each rank of the consumer that has registered and is not written yet.
func (l *loop) serve(o *offer) {
	for _, r := range o.demand.peer.ranks {
		if reg := o.demand.regs[r.agent]; reg != nil && reg.write == nil && o.failed == nil {
			l.startWrite(o, reg, r)
		}
	}
}

func (l *loop) startWrite(o *offer, reg *registration, to *remoteRank) {
	w := &write{
		source:     l.ours,
		have:       o.Blocks,
		want:       reg.Blocks,
		tokens:     o.Tokens,
		target:     to,
		reg:        reg,
		notif:      l.completion(reg),
		matched:    latest(o.since, reg.since),
		postBefore: reg.postBefore,
		transport:  l.nixl,
	}
	reg.write = w
	o.writes = append(o.writes, w)
	o.active++
	l.writing++
	l.writers.submit(w, func() { l.post(func(l *loop) { l.written(o, w) }) })
	l.announceWrite(reg)
}

// completion is the message that tells a consumer rank that its WRITE has landed.
func (l *loop) completion(reg *registration) []byte {
	if reg.Epoch > 0 {
		return notify.Done(reg.Epoch, l.cfg.TPSize)
	}
	return notify.Completion(reg.RequestID, l.cfg.TPSize)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// announceWrite tells the consumer, while a writer thread prepares the WRITE.
func (l *loop) announceWrite(reg *registration) {
	if reg.Epoch > 0 {
		l.tell(reg.agent, notify.Writing(reg.Epoch))
	}
}

// written continues after a writer has dealt with a write.
func (l *loop) written(o *offer, w *write) {
	l.writing--
	switch {
	case w.abandoned:
	case w.failed != nil:
		l.writeEnded(o, w, w.failed)
	case w.done:
		l.finishWrite(o, w, nil)
	default:
		l.posted[w] = o
	}
}

// finishWrite is called once per posted WRITE, when it is over.
func (l *loop) finishWrite(o *offer, w *write, err error) {
	w.ended = time.Now()
	if rerr := w.release(); rerr != nil {
		l.log.Error("release of a finished WRITE", "request", o.RequestID, "why", rerr)
	}
	var why *failure
	if err != nil {
		why = failf(ReasonWriteFailed, "WRITE to %s, rank %v: %w", o.demand.peer, w.target.address, err)
	}
	l.writeEnded(o, w, why)
}

// writeEnded is called once per write that was not abandoned, when it reads no blocks any more.
func (l *loop) writeEnded(o *offer, w *write, why *failure) {
	o.active--
	if why == nil {
		w.landed = true
		l.endRegistration(w.reg)
	} else {
		l.refuse(w.reg, why)
		if why.reason == ReasonWriteFailed {
			o.demand.peer.broken = true
		}
		l.failOffer(o, why)
		return
	}
	l.settle(o)
}

// settle reports an offer if nothing of it is left to do.
func (l *loop) settle(o *offer) {
	switch {
	case o.active > 0:
	case o.failed != nil:
		l.endFailed(o)
	case o.demand.written():
		l.endSent(o)
	}
}

// endSent reports an offer that every rank of the consumer has got.
func (l *loop) endSent(o *offer) {
	ev := Event{Tag: o.Tag, Kind: Sent}
	var first, last time.Time
	for _, w := range o.writes {
		if !w.landed { // of a registration that was replaced
			continue
		}
		ev.Bytes, ev.Descriptors, ev.BlockPairs = ev.Bytes+w.bytes, ev.Descriptors+w.descriptors, ev.BlockPairs+w.pairs
		ev.Post += w.post
		ev.Match = max(ev.Match, w.postedAt.Sub(w.matched))
		last = latest(last, w.ended)
		if first.IsZero() || w.postedAt.Before(first) {
			first = w.postedAt
		}
	}
	ev.Write = last.Sub(first)
	l.stats.Sent++
	l.stats.Bytes += ev.Bytes
	l.stats.Descriptors += ev.Descriptors
	l.stats.BlockPairs += ev.BlockPairs
	l.log.Debug("sent", "request", o.RequestID, "to", o.demand.peer, "ranks", len(o.writes), "bytes", ev.Bytes, "pairs", ev.BlockPairs,
		"descriptors", ev.Descriptors, "match", ev.Match, "post", ev.Post, "write", ev.Write)
	l.dropOffer(o)
	l.events.end(ev)
}

// endFailed reports an offer that was not, or not wholly, written. It must not be called
// while a WRITE of it may still read the blocks.
func (l *loop) endFailed(o *offer) {
	l.dropOffer(o)
	l.stats.SendFailed++
	l.stats.Failures[o.failed.reason]++
	switch o.failed.reason {
	case ReasonLeaseExpired:
		l.stats.ExpiredOffers++
	case ReasonWriteFailed:
		l.stats.FailedTransfers++
	}
	l.events.end(Event{Tag: o.Tag, Kind: SendFailed, Reason: o.failed.reason, Message: o.failed.Error()})
	l.log.Warn("send failed", "request", o.RequestID, "after", time.Since(o.since), "why", o.failed)
}

func (l *loop) dropOffer(o *offer) {
	delete(l.offers, o.Tag)
	for _, name := range o.names() {
		l.offersByName.remove(name, o)
	}
	if d := o.demand; d != nil {
		d.failed = o.failed
		l.endDemand(d)
		return
	}
	l.waiting.remove(o)
	if o.TransferID != "" { // a request id may be that of the next attempt, too
		l.declined.add(&decline{o.keys, o.failed, time.Now().Add(l.cfg.Lease)})
	}
}

// failOffer gives an offer up for the first reason of all. What is not posted will not be;
// what is, is waited for.
func (l *loop) failOffer(o *offer, why *failure) {
	if o.failed == nil {
		o.failed = why
	}
	l.abandonWrites(o)
	for _, w := range o.writes { // also of registrations that were replaced
		if w.abandoned {
			l.refuse(w.reg, why)
		}
	}
	if o.demand != nil {
		for _, reg := range o.demand.regs {
			if reg.write == nil {
				l.refuse(reg, why)
			}
		}
	}
	l.settle(o)
}

// abandonWrites takes the writes of an offer away from the writers, except those that are, or
// are about to be, posted.
func (l *loop) abandonWrites(o *offer) (abandoned int) {
	for _, w := range o.writes {
		if l.abandon(w) {
			abandoned++
		}
	}
	return abandoned
}

// abandon takes a write away from the writers and reports whether it was in time.
func (l *loop) abandon(w *write) bool {
	if !w.take() {
		return false
	}
	w.abandoned = true
	w.reg.demand.offer.active--
	return true
}

// abandonOffer ends an offer early unless all of it is, or is about to be, posted.
func (l *loop) abandonOffer(o *offer, why *failure) {
	if l.abandonWrites(o) == 0 && o.demand != nil && o.demand.taken() {
		return
	}
	l.failOffer(o, why)
}

func (l *loop) expireOffer(o *offer) {
	if o.failed != nil {
		return // a WRITE of it is waited for
	}
	what := "no consumer registered for it"
	if d := o.demand; d != nil {
		what = fmt.Sprintf("%d of %d ranks of %s have registered, %d could be written to in time", len(d.regs), d.ranks, d.peer, len(o.writes)-o.active)
	}
	l.abandonOffer(o, failf(ReasonLeaseExpired, "lease ended after %v: %s", time.Since(o.since).Round(time.Millisecond), what))
}
