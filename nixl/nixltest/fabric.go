// Package nixltest is a NIXL without NIXL: agents of one process that copy bytes
// between the addresses they are given, with faults injected on request.
//
// It behaves as NIXL over UCX does where the two can be compared (package
// conformance compares them). In particular the completion notification of a
// transfer leaves only when the initiator polls. Time is read when an agent is
// polled and nothing runs in the background, so that tests in a [testing/synctest]
// bubble are deterministic.
package nixltest

import (
	"fmt"
	"sync"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
)

// Fabric connects the agents made from it. All its methods may be called from any
// thread at any time.
type Fabric struct {
	faults Faults

	mu     sync.Mutex
	agents map[string]*agent // living, by name
	births uint64            // agents made so far; numbers incarnations
	sent   uint64            // messages sent so far; keeps the order of arrival
}

// Faults decide the fate of what passes through a fabric; a nil function means that
// nothing goes wrong. They are called with the fabric locked, one at a time, and must
// not call into it.
type Faults struct {
	// Message says how often and after which delay a notification is delivered: once
	// for each entry, so that no entry loses it and two double it. A longer delay than
	// that of a later message changes their order.
	Message func(Message) (delays []time.Duration)
	// Transfer says how a transfer goes that is being posted.
	Transfer func(Transfer) Outcome
	// Landing sees the memory of both sides just before the bytes of a transfer move.
	Landing func(Transfer)
}

// Message is a notification on its way.
type Message struct {
	From, To string
	Payload  []byte // must not be changed
}

// Transfer is a posted request.
type Transfer struct {
	Op        nixl.Op
	Initiator string
	Target    string
	Bytes     uint64
	Notif     []byte      // must not be changed
	Local     []nixl.Desc // must not be changed
	Remote    []nixl.Desc // must not be changed
}

// Outcome is how a transfer goes. The zero value: done within Post.
type Outcome struct {
	// PostErr, if not nil, is returned by Post; nothing is transferred.
	PostErr error
	// Delay is the time from Post to the moment when the bytes land, all at once, at
	// the first poll after it or by Land.
	Delay time.Duration
	// Err, if not nil, is what the transfer ends with, instead of landing.
	Err error
	// Never keeps the transfer in progress for good.
	Never bool
}

// NewFabric makes a fabric without agents.
func NewFabric(faults Faults) *Fabric {
	return &Fabric{faults: faults, agents: map[string]*agent{}}
}

// Agent makes an agent, which its user closes. A name can be used again once its agent
// is closed or killed; peers must load the new one's metadata.
func (f *Fabric) Agent(name string) (nixl.Transport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name == "" || f.agents[name] != nil {
		return nil, fmt.Errorf("nixltest: make agent %q: %w: the name is empty or taken", name, nixl.ErrInvalid)
	}
	f.births++
	a := &agent{fabric: f, name: name, incarnation: f.births, peers: map[string]*peer{}, active: map[string]int{}}
	f.agents[name] = a
	return a, nil
}

// Kill ends an agent as a crash of its process would: its calls return ErrClosed,
// its memory is not touched any more, and what its peers do with it fails.
func (f *Fabric) Kill(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.agents[name]; a != nil {
		a.closed = true
		delete(f.agents, name)
	}
}

// Land moves the bytes of those transfers of an agent that are due, as the hardware does
// while nobody polls. Their ends are still to be polled.
func (f *Fabric) Land(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.agents[name]; a != nil {
		for _, r := range a.flying {
			r.landIfDue()
		}
	}
}

// living is the agent that a peer entry points to, or nil if it is gone.
func (f *Fabric) living(p *peer) *agent {
	if a := f.agents[p.name]; a != nil && a.incarnation == p.incarnation {
		return a
	}
	return nil
}

// landing shows a transfer to who watches.
func (f *Fabric) landing(t Transfer) {
	if f.faults.Landing != nil {
		f.faults.Landing(t)
	}
}

// send puts a message into the inbox of its receiver.
func (f *Fabric) send(from *agent, to *agent, payload []byte) {
	delays := []time.Duration{0}
	if f.faults.Message != nil {
		delays = f.faults.Message(Message{from.name, to.name, payload})
	}
	for _, delay := range delays {
		f.sent++
		to.receive(letter{
			due:          time.Now().Add(delay),
			number:       f.sent,
			notification: nixl.Notification{Agent: from.name, Payload: append([]byte{}, payload...)},
		})
	}
}

// outcome asks the faults about a transfer.
func (f *Fabric) outcome(t Transfer) Outcome {
	if f.faults.Transfer == nil {
		return Outcome{}
	}
	return f.faults.Transfer(t)
}
