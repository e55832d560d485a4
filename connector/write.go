package connector

import (
	"sync/atomic"
	"time"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/nixl"
)

// write is one WRITE on its way: filled in by the loop, planned and posted by a writer
// thread, then handed back to the loop, which polls it to its end.
type write struct {
	transport  nixl.Transport
	source     blocks.Side
	sourceMem  nixl.Mem
	have, want [][]uint32
	target     *remoteRank
	notif      []byte
	matched    time.Time // when both offer and registration were there
	postBefore time.Time // the consumer may reuse its blocks after that

	claim atomic.Int32 // claimNone, then one of the others, once

	// Set by the writer.
	request                   nixl.Request
	status                    postStatus
	failed                    *failure
	postedAt                  time.Time
	post                      time.Duration
	bytes, descriptors, pairs uint64
}

type postStatus int

const (
	inFlight postStatus = iota
	doneAtPost
)

// Whoever moves claim first decides: the writer that is about to post, or the loop that
// gives the offer up. So an offer is never reported while a WRITE may still be posted.
const (
	claimNone int32 = iota
	claimPost
	claimAbandoned
)

func (w *write) abandon() bool { return w.claim.CompareAndSwap(claimNone, claimAbandoned) }

func (w *write) release() error {
	if w.request == nil {
		return nil
	}
	return w.request.Release()
}

// writer holds the buffers of one writer thread.
type writer struct {
	planner       blocks.Planner
	local, remote []nixl.Desc
}

// run plans, creates and posts. It reports through w.failed.
func (wr *writer) run(w *write) {
	if w.claim.Load() == claimAbandoned {
		w.failed = failf(ReasonCancelled, "abandoned")
		return
	}
	if err := wr.prepare(w); err != nil {
		if w.claim.CompareAndSwap(claimNone, claimPost) {
			w.failed = err
		} else {
			w.failed = failf(ReasonCancelled, "abandoned")
		}
		return
	}
	if !w.claim.CompareAndSwap(claimNone, claimPost) {
		w.release()
		w.failed = failf(ReasonCancelled, "abandoned")
		return
	}
	w.postedAt = time.Now()
	if !w.postedAt.Before(w.postBefore) {
		w.release()
		w.failed = failf(ReasonLeaseExpired, "the consumer's registration ran out before the WRITE could be posted")
		return
	}
	wr.post(w)
}

func (wr *writer) prepare(w *write) *failure {
	copies, pairs, err := wr.planner.Plan(w.source, w.target.side, w.have, w.want)
	if err != nil {
		return failf(ReasonIncompatible, "map blocks to %s: %w", w.target.agent, err)
	}
	wr.local, wr.remote = wr.local[:0], wr.remote[:0]
	for _, c := range copies {
		wr.local = append(wr.local, nixl.Desc{Addr: c.Src, Len: c.Len, Dev: w.target.localDevice})
		wr.remote = append(wr.remote, nixl.Desc{Addr: c.Dst, Len: c.Len, Dev: w.target.device})
		w.bytes += c.Len
	}
	w.pairs, w.descriptors = pairs, uint64(len(copies))
	if len(copies) == 0 {
		return nil
	}
	w.request, err = w.transport.Create(nixl.Write, w.sourceMem, wr.local, w.target.mem, wr.remote, w.target.agent, w.notif)
	if err != nil {
		return failf(ReasonWriteFailed, "create WRITE of %d descriptors to %s: %w", len(copies), w.target.agent, err)
	}
	return nil
}

func (wr *writer) post(w *write) {
	if w.request == nil { // nothing to move: the consumer still waits to hear so
		w.status = doneAtPost
		if err := w.transport.Notify(w.target.agent, w.notif); err != nil {
			w.failed = failf(ReasonWriteFailed, "send completion to %s: %w", w.target.agent, err)
		}
		return
	}
	status, err := w.request.Post()
	w.post = time.Since(w.postedAt)
	if err != nil {
		w.release()
		w.failed = failf(ReasonWriteFailed, "post WRITE to %s: %w", w.target.agent, err)
		return
	}
	if status == nixl.Done {
		w.status = doneAtPost
	}
}
