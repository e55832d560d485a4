package nixl

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nixlpush/nixlpush/nixl/internal/capi"
)

// agent is a Transport over a loaded NIXL library.
type agent struct {
	name     string
	capi     capi.Agent
	backends []capi.Backend

	// mu is held shared around every call into NIXL, so that Close waits for them.
	mu     sync.RWMutex
	closed bool
	// open counts requests and lists not yet released; they point into the agent.
	open atomic.Int64
	// lists are those that no Create is filling.
	lists chan *capi.Lists
	// active counts the requests in progress, by peer.
	active counter
}

// Open loads NIXL (once per path and process; it is never unloaded), and creates an
// agent with its backends. It blocks for as long as the backends look at the
// machine's devices, some 10 to 500 ms. The caller closes the Transport.
func Open(c Config) (Transport, error) {
	library, err := openLibrary(c)
	if err != nil {
		return nil, err
	}
	name := c.Name
	if name == "" {
		name = "nixlpush-" + rand.Text()
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	a := &agent{name: name, lists: make(chan *capi.Lists, keptLists)}
	var status capi.Status
	a.capi, status = library.CreateAgent(name, capi.Config{
		ProgressThread: c.ProgressThread,
		ProgressDelay:  c.ProgressDelay,
		ThreadSync:     c.ThreadSync.code(),
		Telemetry:      true,
	})
	if err := check("create agent "+name, status); err != nil {
		return nil, err
	}
	if err := a.createBackends(c.Backends); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *agent) createBackends(backends []Backend) error {
	if len(backends) == 0 {
		backends = []Backend{{Name: "UCX"}}
	}
	for _, b := range backends {
		if plugins := a.capi.Plugins(); !slices.Contains(plugins, b.Name) {
			return fmt.Errorf("nixl: create backend %s: %w: this NIXL has %s",
				b.Name, ErrNotFound, strings.Join(plugins, ", "))
		}
		backend, status := a.capi.CreateBackend(b.Name, b.Params)
		if err := check("create backend "+b.Name, status); err != nil {
			return fmt.Errorf("%w (NIXL has printed the reason on stderr)", err)
		}
		a.backends = append(a.backends, backend)
	}
	return nil
}

func (a *agent) Name() string { return a.name }

// enter begins a call into NIXL; on success the caller must call a.mu.RUnlock.
func (a *agent) enter() error {
	a.mu.RLock()
	if a.closed {
		a.mu.RUnlock()
		return ErrClosed
	}
	return nil
}

// call runs one call that needs no more than the agent.
func (a *agent) call(what string, f func() capi.Status) error {
	if err := a.enter(); err != nil {
		return fmt.Errorf("nixl: %s: %w", what, err)
	}
	defer a.mu.RUnlock()
	return check(what, f())
}

func (a *agent) Metadata() (metadata []byte, err error) {
	err = a.call("get local metadata", func() (status capi.Status) {
		metadata, status = a.capi.Metadata()
		return status
	})
	return metadata, err
}

func (a *agent) Load(metadata []byte) (name string, err error) {
	if len(metadata) == 0 {
		return "", fmt.Errorf("nixl: load metadata: %w: it is empty", ErrInvalid)
	}
	err = a.call("load metadata", func() (status capi.Status) {
		name, status = a.capi.Load(metadata)
		return status
	})
	return name, err
}

// Unload fails with ErrActive while requests to the peer are in progress: NIXL would
// forget the peer, answer every poll of these requests with an error, and go on
// writing into memory that looks free.
func (a *agent) Unload(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return a.active.ifNone(name, func() error {
		return a.call("unload "+name, func() capi.Status { return a.capi.Unload(name) })
	})
}

func (a *agent) Connect(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return a.call("connect to "+name, func() capi.Status { return a.capi.Connect(name) })
}

func (a *agent) Notify(name string, payload []byte) error {
	if err := checkName(name); err != nil {
		return err
	}
	return a.call("notify "+name, func() capi.Status { return a.capi.Notify(name, payload) })
}

func (a *agent) Notifications() (arrived []Notification, err error) {
	err = a.call("get notifications", func() capi.Status {
		return a.capi.Drain(func(name string, payload []byte) {
			arrived = append(arrived, Notification{Agent: name, Payload: payload})
		})
	})
	return arrived, err
}

// Close frees the agent. With requests or lists still open it fails with ErrActive
// and the agent stays usable: NIXL would read and write freed memory.
func (a *agent) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	if n := a.open.Load(); n > 0 {
		return fmt.Errorf("nixl: close agent %s: %w: %d requests and lists are not released", a.name, ErrActive, n)
	}
	a.closed = true
	close(a.lists)
	for l := range a.lists {
		a.capi.FreeLists(l)
	}
	status := a.capi.Destroy()
	for _, b := range a.backends {
		a.capi.FreeBackend(b)
	}
	return check("close agent "+a.name, status)
}

// code is NIXL's number for the mode.
func (s ThreadSync) code() int {
	if s == SyncStrict {
		return 1
	}
	return 2
}

// checkName refuses what would reach C as another name.
func checkName(name string) error {
	if name == "" || strings.ContainsRune(name, 0) {
		return fmt.Errorf("nixl: agent name %q: %w: it is empty or holds a NUL", name, ErrInvalid)
	}
	return nil
}
