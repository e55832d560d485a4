package connector

import (
	"sync/atomic"
	"time"

	"github.com/nixlpush/nixlpush/internal/eventfd"
	"github.com/nixlpush/nixlpush/nixl"
	"golang.org/x/sys/unix"
)

// waker is how the loop rests, and how others end its rest early.
type waker interface {
	// pause returns after limit, or earlier once wake is called. Where the transport can,
	// it polls for notifications every interval meanwhile, and returns as soon as it has
	// some; else it returns after interval. It does not rest at all if ready says that
	// there is work.
	pause(interval, limit time.Duration, ready func() bool) ([]nixl.Notification, error)
	wake()
	close()
}

// fdWaker rests on an eventfd. Go's own timers would not do: when a thread idles in the
// network poller their resolution is a millisecond, and the loop needs 50 µs.
type fdWaker struct {
	transport nixl.Transport
	fd        *eventfd.FD
	resting   atomic.Bool
}

func newFDWaker(t nixl.Transport) (*fdWaker, error) {
	fd, err := eventfd.New()
	if err != nil {
		return nil, err
	}
	return &fdWaker{transport: t, fd: fd}, nil
}

func (w *fdWaker) pause(interval, limit time.Duration, ready func() bool) ([]nixl.Notification, error) {
	// The order (resting, then ready) pairs with wake's caller, who adds work before it
	// looks at resting: one of the two always sees the other.
	w.resting.Store(true)
	defer w.awake()
	if ready() {
		return nil, nil
	}
	if t, ok := w.transport.(nixl.Waiter); ok {
		return t.Await(w.fd.Number(), interval, limit)
	}
	rest := unix.NsecToTimespec(int64(interval))
	_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(w.fd.Number()), Events: unix.POLLIN}}, &rest, nil)
	return nil, nil
}

func (w *fdWaker) awake() {
	w.resting.Store(false)
	w.fd.Clear()
}

func (w *fdWaker) wake() {
	if w.resting.Load() {
		w.fd.Set()
	}
}

func (w *fdWaker) close() { w.fd.Close() }
