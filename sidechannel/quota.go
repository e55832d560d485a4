package sidechannel

import (
	"sync"
	"time"
)

const (
	quotaPeriod = 10 * time.Second
	quotaLines  = 10
)

// quota bounds how many log lines strangers can cause.
type quota struct {
	mu      sync.Mutex
	end     time.Time // of the current period
	used    int
	dropped int // since the last line
}

// take reports whether a line may be written now, and how many were left out before it.
func (q *quota) take(now time.Time) (ok bool, dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.After(q.end) {
		q.end = now.Add(quotaPeriod)
		q.used = 0
	}
	if q.used == quotaLines {
		q.dropped++
		return false, 0
	}
	q.used++
	dropped, q.dropped = q.dropped, 0
	return true, dropped
}
