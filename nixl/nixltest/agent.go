package nixltest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
)

// agent is a Transport of a fabric; the fabric's lock guards all of it.
type agent struct {
	fabric      *Fabric
	name        string
	incarnation uint64
	closed      bool

	registered []*registration
	peers      map[string]*peer
	inbox      []letter       // sorted by due time, then number
	open       int            // requests and lists not released
	active     map[string]int // requests in progress, by peer
	flying     []*request     // the same
}

// letter is a notification that is delivered at a time.
type letter struct {
	due          time.Time
	number       uint64
	notification nixl.Notification
}

func (a *agent) Name() string { return a.name }

// enter locks the fabric for a call; on success the caller unlocks it.
func (a *agent) enter(what string) error {
	a.fabric.mu.Lock()
	if a.closed {
		a.fabric.mu.Unlock()
		return fmt.Errorf("nixltest: %s: %w", what, nixl.ErrClosed)
	}
	return nil
}

func (a *agent) Metadata() ([]byte, error) {
	if err := a.enter("get metadata"); err != nil {
		return nil, err
	}
	defer a.fabric.mu.Unlock()
	return encodeMetadata(peer{a.name, a.incarnation, a.ranges()}), nil
}

func (a *agent) Load(metadata []byte) (string, error) {
	if err := a.enter("load metadata"); err != nil {
		return "", err
	}
	defer a.fabric.mu.Unlock()
	p, err := decodeMetadata(metadata)
	if err != nil {
		return "", fmt.Errorf("nixltest: load metadata: %w: %w", nixl.ErrInvalid, err)
	}
	if old := a.peers[p.name]; old != nil && old.incarnation != p.incarnation {
		return "", fmt.Errorf("nixltest: load metadata: %w: another %s is loaded", nixl.ErrInvalid, p.name)
	}
	a.peers[p.name] = p
	return p.name, nil
}

func (a *agent) Unload(name string) error {
	if err := a.enter("unload"); err != nil {
		return err
	}
	defer a.fabric.mu.Unlock()
	if _, err := a.peer("unload", name); err != nil {
		return err
	}
	if n := a.active[name]; n > 0 {
		return fmt.Errorf("nixltest: unload %s: %w: %d transfers to it", name, nixl.ErrActive, n)
	}
	delete(a.peers, name)
	return nil
}

func (a *agent) Connect(name string) error {
	if err := a.enter("connect"); err != nil {
		return err
	}
	defer a.fabric.mu.Unlock()
	_, err := a.peer("connect", name)
	return err
}

// peer finds a loaded peer.
func (a *agent) peer(what, name string) (*peer, error) {
	if p := a.peers[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("nixltest: %s %q: %w", what, name, nixl.ErrNotFound)
}

func (a *agent) Notify(name string, payload []byte) error {
	if err := a.enter("notify"); err != nil {
		return err
	}
	defer a.fabric.mu.Unlock()
	p, err := a.peer("notify", name)
	if err != nil {
		return err
	}
	to := a.fabric.living(p)
	if to == nil {
		return fmt.Errorf("nixltest: notify %s: %w", name, nixl.ErrBackend)
	}
	a.fabric.send(a, to, payload)
	return nil
}

func (a *agent) receive(l letter) {
	at, _ := slices.BinarySearchFunc(a.inbox, l, func(x, y letter) int {
		return cmp.Or(x.due.Compare(y.due), cmp.Compare(x.number, y.number))
	})
	a.inbox = slices.Insert(a.inbox, at, l)
}

func (a *agent) Notifications() ([]nixl.Notification, error) {
	if err := a.enter("get notifications"); err != nil {
		return nil, err
	}
	defer a.fabric.mu.Unlock()
	now := time.Now()
	var arrived []nixl.Notification
	for len(a.inbox) > 0 && !a.inbox[0].due.After(now) {
		arrived = append(arrived, a.inbox[0].notification)
		a.inbox = a.inbox[1:]
	}
	return arrived, nil
}

func (a *agent) Close() error {
	a.fabric.mu.Lock()
	defer a.fabric.mu.Unlock()
	if a.closed {
		return nil
	}
	if a.open > 0 {
		return fmt.Errorf("nixltest: close agent %s: %w: %d requests and lists are not released", a.name, nixl.ErrActive, a.open)
	}
	a.closed = true
	delete(a.fabric.agents, a.name)
	return nil
}
