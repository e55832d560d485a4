package connector

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/nixl"
)

// write is one WRITE on its way: filled in by the loop, planned and posted by a writer
// thread, then handed back to the loop, which polls it to its end.
type write struct {
	transport  nixl.Transport
	reg        *registration // that it serves
	source     cache
	have, want [][]uint32
	tokens     uint64 // that both lists end with, 0 if not known
	target     *remoteRank
	notif      []byte
	matched    time.Time // when both offer and registration were there
	postBefore time.Time // the consumer may reuse its blocks after that

	// Whoever sets claimed decides: the writer that is about to post, or the loop that gives
	// the offer up. So an offer is never reported while a WRITE may still be posted.
	claimed   atomic.Bool
	abandoned bool      // the loop has claimed it
	landed    bool      // it has ended well
	ended     time.Time // set by the loop

	// Set by the writer.
	request                   nixl.Request
	done                      bool // within the post; else the loop polls the request
	failed                    *failure
	postedAt                  time.Time
	post                      time.Duration
	bytes, descriptors, pairs uint64
}

// take claims the write and reports whether the caller was the first to.
func (w *write) take() bool { return w.claimed.CompareAndSwap(false, true) }

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
	err := wr.prepare(w)
	if !w.take() {
		w.release()
		w.failed = failf(ReasonCancelled, "abandoned")
		return
	}
	if err != nil {
		w.failed = err
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
	plan, err := wr.planner.Plan(w.target.mapping, w.have, w.want, w.tokens)
	if err != nil {
		return failf(ReasonIncompatible, "map blocks to %s, rank %v: %w", w.target.agent, w.target.address, err)
	}
	w.bytes, w.pairs, w.descriptors = plan.Bytes, plan.Pieces, uint64(plan.Copies)
	if plan.Copies == 0 {
		return nil
	}
	wr.expand(&plan, w.source.device, w.target.device)
	w.request, err = w.transport.Create(nixl.Write, w.source.mem, wr.local, w.target.mem, wr.remote, w.target.agent, w.notif)
	if err != nil {
		return failf(ReasonWriteFailed, "create WRITE of %d descriptors to %s: %w", plan.Copies, w.target.agent, err)
	}
	return nil
}

// expand writes the copies of the plan down as NIXL's descriptors.
func (wr *writer) expand(plan *blocks.Plan, source, target uint64) {
	wr.local = slices.Grow(wr.local[:0], plan.Copies)[:plan.Copies]
	wr.remote = slices.Grow(wr.remote[:0], plan.Copies)[:plan.Copies]
	local, remote := wr.local, wr.remote
	for _, p := range plan.Pastes {
		for i, c := range p.Copies {
			local[i] = nixl.Desc{Addr: p.Src + c.Src, Len: c.Len, Dev: source}
			remote[i] = nixl.Desc{Addr: p.Dst + c.Dst, Len: c.Len, Dev: target}
		}
		local, remote = local[len(p.Copies):], remote[len(p.Copies):]
	}
}

func (wr *writer) post(w *write) {
	if w.request == nil { // nothing to move: the consumer still waits to hear so
		w.done = true
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
		w.done = true
	}
}
