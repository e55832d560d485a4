package connector

import (
	"sync/atomic"
	"time"

	"github.com/nixlpush/nixlpush/internal/eventfd"
	"golang.org/x/sys/unix"
)

// waker is how the loop rests, and how others end its rest early.
type waker interface {
	// pause returns after d, or earlier once wake is called. It does not rest at all if
	// ready says that there is work.
	pause(d time.Duration, ready func() bool)
	wake()
	close()
}

// fdWaker rests in ppoll on an eventfd. Go's own timers would not do: when a thread idles
// in the network poller their resolution is a millisecond, and the loop needs 50 µs.
type fdWaker struct {
	fd      *eventfd.FD
	resting atomic.Bool
}

func newFDWaker() (*fdWaker, error) {
	fd, err := eventfd.New()
	if err != nil {
		return nil, err
	}
	return &fdWaker{fd: fd}, nil
}

func (w *fdWaker) pause(d time.Duration, ready func() bool) {
	// The order (resting, then ready) pairs with wake's caller, who adds work before it
	// looks at resting: one of the two always sees the other.
	w.resting.Store(true)
	defer w.resting.Store(false)
	if ready() {
		return
	}
	ts := unix.NsecToTimespec(int64(d))
	if n, _ := unix.Ppoll([]unix.PollFd{{Fd: int32(w.fd.Number()), Events: unix.POLLIN}}, &ts, nil); n > 0 {
		w.fd.Clear()
	}
}

func (w *fdWaker) wake() {
	if w.resting.Load() {
		w.fd.Set()
	}
}

func (w *fdWaker) close() { w.fd.Close() }
