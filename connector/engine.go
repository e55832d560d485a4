package connector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nixlpush/nixlpush/internal/safego"
	"github.com/nixlpush/nixlpush/nixl"
)

// closeWait is how long Close waits for WRITEs that are posted: NIXL cannot cancel them.
const closeWait = 5 * time.Second

// Fetch asks a peer's side channel for the metadata of one of its ranks.
type Fetch func(ctx context.Context, host string, port, ppRank, tpRank int) ([]byte, error)

// Engine is one worker's end of the push. All methods may be called from any thread.
type Engine struct {
	cfg    Config
	nixl   nixl.Transport
	fetch  Fetch
	log    *slog.Logger
	events *ledger
	inbox  inbox
	waker  waker

	visible   atomic.Pointer[Stats]
	published Stats // the loop's copy of visible

	mu       sync.Mutex // guards what follows: set-up and tear-down, not the path of requests
	phase    phase
	failed   error // set when the engine is poisoned
	layout   *Layout
	ours     cache    // what layout describes
	limits   []uint32 // of its block ids, by group
	metadata []byte
	memory   []nixl.Registration
	writers  *writers
	cancel   context.CancelFunc
	ended    chan struct{} // closed when the loop has ended
}

type phase int

const (
	opened phase = iota
	running
	closed
)

// Open makes an engine. It takes over the Transport and closes it in Close.
func Open(cfg Config, t nixl.Transport, fetch Fetch, log *slog.Logger) (*Engine, error) {
	w, err := newFDWaker(t)
	if err != nil {
		return nil, err
	}
	e, err := open(cfg, t, fetch, log, w)
	if err != nil {
		w.close()
	}
	return e, err
}

func open(cfg Config, t nixl.Transport, fetch Fetch, log *slog.Logger, w waker) (*Engine, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	events, err := newLedger(cfg.EventsWaiting)
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, nixl: t, fetch: fetch, log: log, events: events, waker: w, ended: make(chan struct{})}
	e.visible.Store(&Stats{})
	return e, nil
}

// Register describes and registers the KV cache and starts the engine: once, before the
// first Submit. The memory must stay mapped until Close has returned.
func (e *Engine) Register(layout Layout) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase != opened {
		return fmt.Errorf("%w: the cache is registered already or the engine is closed", ErrState)
	}
	if err := layout.complete(e.cfg.TPRank, e.cfg.TPSize); err != nil {
		return err
	}
	memory, err := e.registerMemory(layout.Memory)
	if err != nil {
		return err
	}
	metadata, err := e.describe(&layout)
	if err != nil {
		return errors.Join(err, releaseAll(memory))
	}
	e.layout, e.ours, e.metadata, e.memory = &layout, cacheOf(&layout), metadata, memory
	e.limits = e.ours.limits()
	e.start()
	return nil
}

func (e *Engine) registerMemory(ranges []Memory) (regs []nixl.Registration, err error) {
	byMem := map[nixl.Mem][]nixl.Desc{}
	for _, m := range ranges {
		byMem[m.Mem] = append(byMem[m.Mem], m.Desc)
	}
	for mem, descs := range byMem {
		r, err := e.nixl.Register(mem, descs)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("register %d ranges of memory: %w", len(descs), err), releaseAll(regs))
		}
		regs = append(regs, r)
	}
	return regs, nil
}

func releaseAll(regs []nixl.Registration) (err error) {
	for _, r := range regs {
		err = errors.Join(err, r.Release())
	}
	return err
}

func (e *Engine) start() {
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel, e.phase = cancel, running
	e.writers = startWriters(e.cfg.Writers, e.panicked)
	l := newLoop(e, ctx)
	safego.Go("loop", func(value any, stack []byte) {
		e.poison(value, stack)
		l.limp()
		e.loopEnded()
	}, func() {
		l.run()
		e.loopEnded()
	})
}

// Metadata is what peers need to know of this rank, to be published on a side channel.
func (e *Engine) Metadata() ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.metadata == nil {
		return nil, fmt.Errorf("%w: register the cache first", ErrState)
	}
	return e.metadata, nil
}

// Submit hands over what changed in one step of the scheduler, all or nothing. It takes
// over the step's slices. It does not block.
func (e *Engine) Submit(s Step) error {
	e.mu.Lock()
	limits, phase, failed := e.limits, e.phase, e.failed
	e.mu.Unlock()
	switch {
	case failed != nil:
		return failed
	case phase != running:
		return fmt.Errorf("%w: the cache is not registered, or the engine is closed", ErrState)
	}
	if err := s.check(limits, e.cfg.PPSize); err != nil {
		return err
	}
	if err := e.events.begin(&s); err != nil {
		return err
	}
	e.post(func(l *loop) { l.step(s) })
	return nil
}

// Poll fetches up to len(out) events, oldest first, and returns how many. It does not block.
func (e *Engine) Poll(out []Event) int { return e.events.poll(out) }

// EventFD is readable while events wait. It belongs to the engine.
func (e *Engine) EventFD() int { return e.events.fd.Number() }

// Stats returns the counters. It does not block.
func (e *Engine) Stats() Stats {
	s := *e.visible.Load()
	s.Events = uint64(e.events.waiting())
	s.Goroutines = uint64(runtime.NumGoroutine())
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	s.HeapBytes = sample[0].Value.Uint64()
	return s
}

// Close ends the engine. What is not posted fails; posted WRITEs are waited for, but for
// no more than 5 s: after that it returns an error, and the memory must stay mapped.
func (e *Engine) Close() error {
	e.mu.Lock()
	was, cancel := e.phase, e.cancel
	e.phase = closed
	e.mu.Unlock()
	switch was {
	case closed:
		return fmt.Errorf("%w: the engine is closed", ErrState)
	case running:
		cancel()
		e.post(func(l *loop) { l.shut(failf(ReasonClosed, "the engine was closed")) })
		select {
		case <-e.ended:
		case <-time.After(closeWait):
			e.events.close()
			return fmt.Errorf("close engine: a WRITE is still in flight after %v; its memory must stay mapped", closeWait)
		}
	}
	e.events.close()
	e.waker.close()
	return e.nixl.Close()
}

// post runs f in the loop.
func (e *Engine) post(f func(*loop)) {
	e.inbox.add(f)
	e.waker.wake()
}

// loopEnded tears down what the loop has used. The memory is deregistered before what is
// left is reported: on RDMA no peer can write into it after that.
func (e *Engine) loopEnded() {
	e.writers.stop()
	e.mu.Lock()
	memory, failed := e.memory, e.failed
	e.memory = nil
	e.mu.Unlock()
	if err := releaseAll(memory); err != nil {
		e.log.Error("deregister memory", "why", err)
	}
	if failed != nil {
		e.events.endAll(ReasonInternal, failed.Error(), failed)
	} else {
		e.events.endAll(ReasonClosed, "the engine was closed", ErrState)
	}
	close(e.ended)
}

// panicked is called in a goroutine of ours that has panicked, other than the loop.
func (e *Engine) panicked(value any, stack []byte) {
	e.poison(value, stack)
	e.post(func(l *loop) { l.shut(failf(ReasonInternal, "%v", value)) })
}

// poison makes the engine refuse work. A defect must not end the host's process, but
// what the engine believes is no longer to be trusted.
func (e *Engine) poison(value any, stack []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed == nil {
		e.failed = fmt.Errorf("%w: nixlpush panicked and refuses work, restart this worker: %v", ErrInternal, value)
		e.log.Error("panic in nixlpush", "value", value, "stack", string(stack))
	}
}
