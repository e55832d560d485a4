package connector

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nixlpush/nixlpush/internal/eventfd"
)

// maxLive bounds what one engine holds: tags in use plus events not fetched. It is far
// above what a scheduler has in flight, so reaching it means that nobody polls.
const maxLive = 1 << 20

// role is what a tag stands for.
type role uint8

const (
	announced role = 1 + iota // an Expect without blocks
	expecting
	offering
)

// ledger knows every tag in use and queues the events. It is what makes "reported once"
// true whatever the rest of the engine does: end reports a tag only while it is live.
type ledger struct {
	mu     sync.Mutex
	live   map[uint64]role
	queue  []Event
	fd     *eventfd.FD    // readable while events wait
	word   *atomic.Uint32 // the embedder's, 1 while events wait
	final  error          // why no tag is taken in any more
	closed bool
}

func newLedger(word *atomic.Uint32) (*ledger, error) {
	fd, err := eventfd.New()
	if err != nil {
		return nil, err
	}
	if word == nil {
		word = new(atomic.Uint32)
	}
	word.Store(0)
	return &ledger{live: map[uint64]role{}, fd: fd, word: word}, nil
}

// add queues an event.
func (l *ledger) add(ev Event) {
	l.queue = append(l.queue, ev)
	l.word.Store(1) // first: who is woken by fd looks here
	l.fd.Set()
}

// begin takes in the tags of a step: all or none.
func (l *ledger) begin(s *Step) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.final != nil {
		return l.final
	}
	if len(l.live)+len(l.queue)+len(s.Expects)+len(s.Offers) > maxLive {
		return fmt.Errorf("%w: %d requests and events are held already: poll the events", ErrState, len(l.live)+len(l.queue))
	}
	taken := make(map[uint64]role, len(s.Expects)+len(s.Offers))
	for i := range s.Expects {
		x := &s.Expects[i]
		r := announced
		if len(x.Blocks) > 0 {
			r = expecting
		}
		was, ok := l.live[x.Tag]
		_, twice := taken[x.Tag]
		if twice || ok && !(was == announced && r == expecting) {
			return fmt.Errorf("%w: expect %d (%s): tag %d is in use", ErrInvalid, i, x.RequestID, x.Tag)
		}
		taken[x.Tag] = r
	}
	for i := range s.Offers {
		o := &s.Offers[i]
		_, ok := l.live[o.Tag]
		_, twice := taken[o.Tag]
		if ok || twice {
			return fmt.Errorf("%w: offer %d (%s): tag %d is in use", ErrInvalid, i, o.RequestID, o.Tag)
		}
		taken[o.Tag] = offering
	}
	for tag, r := range taken {
		l.live[tag] = r
	}
	for _, tag := range s.Cancels {
		if l.live[tag] == announced {
			delete(l.live, tag) // it ends at once, so the next step may use the tag
		}
	}
	return nil
}

// end queues the event of a tag if that is live. An announced Expect ends without one.
func (l *ledger) end(ev Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.live[ev.Tag]
	if !ok || l.closed {
		return
	}
	delete(l.live, ev.Tag)
	if r == announced {
		return
	}
	l.add(ev)
}

// endAll ends every live tag for the same reason; begin returns final from now on.
func (l *ledger) endAll(reason Reason, message string, final error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.final = final
	for tag, r := range l.live {
		switch r {
		case expecting:
			l.add(Event{Tag: tag, Kind: ReceiveFailed, Reason: reason, Message: message})
		case offering:
			l.add(Event{Tag: tag, Kind: SendFailed, Reason: reason, Message: message})
		}
	}
	clear(l.live)
}

// poll moves up to len(out) events, oldest first. The eventfd stays readable while any
// are left.
func (l *ledger) poll(out []Event) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 || l.closed {
		return 0
	}
	n := copy(out, l.queue)
	l.queue = l.queue[n:]
	if len(l.queue) == 0 {
		l.queue = nil // let go of the memory of a burst
		l.fd.Clear()
		l.word.Store(0)
	}
	return n
}

func (l *ledger) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.fd.Close()
	}
}
