package nixl

import (
	"time"

	"github.com/nixlpush/nixlpush/nixl/internal/capi"
)

// Waiter is a Transport that can rest until notifications arrive. NIXL offers nothing to
// block on, so somebody has to poll; doing it inside one call spares the Go scheduler a
// wake-up per poll, which costs more than the poll itself.
type Waiter interface {
	// Await polls every interval, after a first rest, until notifications have arrived,
	// which it returns, or fd is readable, or limit has passed. It blocks its thread.
	Await(fd int, interval, limit time.Duration) ([]Notification, error)
}

func (a *agent) Await(fd int, interval, limit time.Duration) (arrived []Notification, err error) {
	err = a.call("await notifications", func() capi.Status {
		return a.capi.Await(fd, interval, limit, func(name string, payload []byte) {
			arrived = append(arrived, Notification{Agent: name, Payload: payload})
		})
	})
	return arrived, err
}
