package connector

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
)

// mined panics inside a call, once armed.
type mined struct {
	nixl.Transport
	notifications, create, load atomic.Bool
}

func (m *mined) Notifications() ([]nixl.Notification, error) {
	if m.notifications.Load() {
		panic("mine in Notifications")
	}
	return m.Transport.Notifications()
}

func (m *mined) Create(op nixl.Op, mem nixl.Mem, local []nixl.Desc, remoteMem nixl.Mem, remote []nixl.Desc, agent string, notif []byte) (nixl.Request, error) {
	if m.create.Load() {
		panic("mine in Create")
	}
	return m.Transport.Create(op, mem, local, remoteMem, remote, agent, notif)
}

func (m *mined) Load(metadata []byte) (string, error) {
	if m.load.Load() {
		panic("mine in Load")
	}
	return m.Transport.Load(metadata)
}

// TestPanicFailsTheEngineOnly has a defect in each kind of goroutine: what the engine
// holds is reported as failed, it takes no more work, and it can be closed.
func TestPanicFailsTheEngineOnly(t *testing.T) {
	for _, where := range []string{"loop", "writer", "handshake"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{T: t, fabric: nixltest.NewFabric(nixltest.Faults{}), site: site{}}
				w.d = w.engine("D", dPort, nil)
				tr, err := w.fabric.Agent("P")
				if err != nil {
					t.Fatal(err)
				}
				m := &mined{Transport: tr}
				w.p = startTestEngine(t, w.site, pPort, m, newChanWaker(), nil)
				if where != "handshake" {
					w.works(1)
				}
				w.offer(2, "waits", 5)
				w.p.until(t, "offer", func(s Stats) bool { return s.Offers == 1 })
				events := 2
				switch where {
				case "loop":
					m.notifications.Store(true)
					events = 1
				case "writer":
					m.create.Store(true)
				case "handshake":
					m.load.Store(true)
				}
				if events == 2 {
					w.offer(3, "trips", 6)
					w.expect(3, "trips", 7)
				}
				for range events {
					if ev := w.p.next(t, 10*time.Second); ev.Kind != SendFailed || ev.Reason != ReasonInternal {
						t.Errorf("event %+v", ev)
					}
				}
				if err := w.p.Submit(Step{}); !errors.Is(err, ErrInternal) {
					t.Errorf("submit: %v", err)
				}
				if err := w.p.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		})
	}
}
