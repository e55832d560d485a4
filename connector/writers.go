package connector

import (
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/nixlpush/nixlpush/internal/safego"
)

// writers are the threads that post. A post can take as long as a copy of the bytes, so
// it must not hold up the loop, which decides how soon others learn of theirs.
type writers struct {
	mu    sync.Mutex
	more  *sync.Cond
	jobs  []writerJob // bounded by the ledger: one per live offer
	ended bool
	wg    sync.WaitGroup
}

type writerJob struct {
	write *write
	done  func() // called by the writer thread
}

func startWriters(n int, onPanic func(any, []byte)) *writers {
	ws := &writers{}
	ws.more = sync.NewCond(&ws.mu)
	for range n {
		ws.wg.Add(1)
		safego.Go("writer", onPanic, func() {
			defer ws.wg.Done()
			runtime.LockOSThread() // NIXL and CUDA keep state per thread
			var wr writer
			for job, ok := ws.next(); ok; job, ok = ws.next() {
				wr.do(job, onPanic)
			}
		})
	}
	return ws
}

// do runs one job and hands it back whatever happens, or the loop would wait for it.
func (wr *writer) do(job writerJob, onPanic func(any, []byte)) {
	defer job.done()
	defer func() {
		if value := recover(); value != nil {
			onPanic(value, debug.Stack())
			if job.write.postedAt.IsZero() || job.write.request == nil { // else it may be in flight: the loop polls it
				job.write.failed = failf(ReasonInternal, "%v", value)
			}
		}
	}()
	wr.run(job.write)
}

func (ws *writers) submit(w *write, done func()) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.jobs = append(ws.jobs, writerJob{w, done})
	ws.more.Signal()
}

func (ws *writers) next() (writerJob, bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for len(ws.jobs) == 0 && !ws.ended {
		ws.more.Wait()
	}
	if len(ws.jobs) == 0 {
		return writerJob{}, false
	}
	job := ws.jobs[0]
	ws.jobs[0] = writerJob{}
	ws.jobs = ws.jobs[1:]
	return job, true
}

// stop lets the threads end after the jobs that are queued. It does not wait.
func (ws *writers) stop() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.ended = true
	ws.more.Broadcast()
}
