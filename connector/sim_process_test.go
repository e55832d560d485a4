package connector

import (
	"errors"
	"sync"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/notify"
)

// simRank is the process of one rank: a real engine, whose transport can stand still as if the
// process were stopped.
type simRank struct {
	*Engine
	engine *simEngine
	agent  string
	cache  *simCache
	waker  *simWaker
	seen   *simCoverage // touched by the engine's loop only
	// lastStep is when the last step was given to it, so that they stay in order.
	lastStep time.Time
}

// simTransport is the NIXL of a rank.
type simTransport struct {
	nixl.Transport
	rank *simRank
}

// stand returns once the process is not stopped.
func (r *simRank) stand() {
	for {
		left := time.Until(time.Unix(0, r.engine.stopped.Load()))
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

func (t simTransport) Notifications() ([]nixl.Notification, error) {
	t.rank.stand()
	t.rank.waker.looked()
	list, err := t.Transport.Notifications()
	t.rank.seen.look(list)
	return list, err
}

func (t simTransport) Notify(name string, payload []byte) error {
	t.rank.stand()
	return t.Transport.Notify(name, payload)
}

// Create may take a while, as the planning of a large request does.
func (t simTransport) Create(op nixl.Op, mem nixl.Mem, local []nixl.Desc, remoteMem nixl.Mem, remote []nixl.Desc, name string, notif []byte) (nixl.Request, error) {
	r, err := t.Transport.Create(op, mem, local, remoteMem, remote, name, notif)
	if err != nil {
		return nil, err
	}
	s := t.rank.engine.s
	fate := s.dice("create", t.rank.agent, notif)
	if fate.Float64() < s.rates.failCreate {
		s.tally.fault("create fails")
		return nil, errors.Join(nixl.ErrBackend, r.Release())
	}
	if fate.Float64() < s.rates.slowCreate {
		s.tally.fault("create slow")
		time.Sleep(upTo(fate, simSlowCreate))
	}
	t.rank.stand()
	return &simHandle{r, t.rank, name, notif}, nil
}

// simHandle is a NIXL request. A process is not stopped between its last look at the clock and
// the post, nor within it: that a WRITE takes bounded time is an assumption of the protocol.
type simHandle struct {
	nixl.Request
	rank  *simRank
	to    string
	notif []byte
}

func (h *simHandle) Post() (nixl.Status, error) {
	s := h.rank.engine.s
	fate := s.dice("post", h.rank.agent, h.notif)
	slow := fate.Float64() < s.rates.slowPost
	if slow && fate.IntN(2) == 0 {
		s.tally.fault("post slow")
		time.Sleep(upTo(fate, simSlowPost))
		slow = false
	}
	status, err := h.Request.Post()
	if err != nil || status == nixl.Done {
		h.rank.post(func(*loop) { h.ended(err) })
	}
	if slow {
		s.tally.fault("post slow")
		time.Sleep(upTo(fate, simSlowPost))
	}
	return status, err
}

func (h *simHandle) Status() (nixl.Status, error) {
	h.rank.stand()
	status, err := h.Request.Status()
	if err != nil || status == nixl.Done {
		h.ended(err)
	}
	return status, err
}

func (h *simHandle) ended(err error) {
	event := "written"
	if err != nil {
		event = "write fails"
	}
	if m, err := notify.Decode(h.notif); err == nil {
		h.rank.seen.wrote(registrationKey{h.to, m.Epoch}, event)
	}
}

// simWaker rests until something is due instead of polling: most of a run's virtual time is
// rests. It wakes as much later as a loop that polls would.
type simWaker struct {
	mu    sync.Mutex
	woken bool
	due   []time.Time // when messages arrive and WRITEs end
	poke  chan struct{}
	seed  uint64 // of how late it wakes
}

func newSimWaker(seed uint64) *simWaker {
	return &simWaker{poke: make(chan struct{}, 1), seed: seed}
}

// expect makes the loop look at t or a little later.
func (w *simWaker) expect(t time.Time) {
	w.mu.Lock()
	w.due = append(w.due, t)
	w.mu.Unlock()
	w.nudge()
}

// looked is called before the loop looks: it needs not be woken for what has come by now.
func (w *simWaker) looked() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, kept := time.Now(), w.due[:0]
	for _, t := range w.due {
		if t.After(now) {
			kept = append(kept, t)
		}
	}
	w.due = kept
}

func (w *simWaker) pause(interval, limit time.Duration, ready func() bool) ([]nixl.Notification, error) {
	if interval == restWriting {
		limit = sweepEvery / 2 // the end of a WRITE is due at a time that is known
	}
	start := time.Now()
	end := start.Add(limit)
	late := time.Duration(mix(w.seed+uint64(start.UnixNano())) % uint64(interval))
	for !ready() {
		now, until := time.Now(), w.next(end, late)
		if !until.After(now) {
			break
		}
		timer := time.NewTimer(until.Sub(now))
		select {
		case <-w.poke:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil, nil
}

// next is when a rest ends: the past if at once.
func (w *simWaker) next(end time.Time, late time.Duration) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken {
		w.woken = false
		return time.Time{}
	}
	for _, t := range w.due {
		if t = t.Add(late); t.Before(end) {
			end = t
		}
	}
	return end
}

func (w *simWaker) wake() {
	w.mu.Lock()
	w.woken = true
	w.mu.Unlock()
	w.nudge()
}

func (w *simWaker) nudge() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

func (w *simWaker) close() {}
