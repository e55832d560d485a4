// Package nixl is the part of NIXL that nixlpush uses, as Go types: agents,
// registered memory, descriptor lists, transfer requests and notifications.
//
// [Transport] is the whole of it. [Open] gives one over a real NIXL library that
// is loaded at run time; package nixltest gives one over memory of this process.
// Both pass the same conformance tests. The package knows nothing of KV caches.
package nixl

import (
	"errors"
	"time"
)

// Mem is the kind of memory a descriptor points into. The values are NIXL's.
type Mem int32

const (
	DRAM Mem = 0 // host memory
	VRAM Mem = 1 // memory of an accelerator
)

// Op is the direction of a transfer as its initiator sees it. The values are NIXL's.
type Op int32

const (
	Read  Op = 0
	Write Op = 1
)

// Status is the state of a posted request that has not failed.
type Status int

const (
	Done       Status = 0
	InProgress Status = 1
)

// Sentinel errors; what a Transport returns wraps one of them.
var (
	// ErrInvalid: an argument NIXL refuses, such as memory that is not registered.
	ErrInvalid = errors.New("invalid argument")
	// ErrNotFound: no metadata of that agent is loaded, or no backend serves the call.
	ErrNotFound = errors.New("not found")
	// ErrBackend: the backend failed, e.g. the peer is gone. NIXL gives no more detail.
	ErrBackend = errors.New("backend error")
	// ErrActive: the request is still in progress, so it can be neither posted again nor released.
	ErrActive = errors.New("request in progress")
	// ErrClosed: the Transport has been closed.
	ErrClosed = errors.New("transport closed")
)

// Desc is one contiguous range of memory. Its layout (three 64-bit words, in this
// order) is relied upon: a []Desc crosses into C as it is.
type Desc struct {
	Addr uint64 // start, bytes
	Len  uint64 // length, bytes
	Dev  uint64 // device ordinal, 0 for DRAM
}

// Notification is a message from another agent.
type Notification struct {
	Agent   string // name of the sender
	Payload []byte // owned by the receiver
}

// Telemetry describes one finished transfer.
type Telemetry struct {
	Post        time.Duration // spent in the call that posted it
	Transfer    time.Duration // from posting to the poll that saw it done
	Bytes       uint64
	Descriptors uint64 // after NIXL's own merging
}

// Registration is memory that NIXL may read and write. Release it after every
// transfer that touches it has ended.
type Registration interface{ Release() error }

// List is a prepared descriptor list, to be indexed by [Transport.Make].
type List interface{ Release() error }

// Request is one transfer. A posted request cannot be cancelled. It belongs to the
// caller until Release. Different requests may be used from different threads at
// once; one request may not.
type Request interface {
	// Post starts the transfer. It can block for as long as a copy of the bytes takes
	// (shared memory, tcp) and returns Done if the transfer ended within the call.
	Post() (Status, error)
	// Status drives the transfer on, and is what makes NIXL's UCX backend send the
	// completion notification: call it until it returns Done or an error.
	Status() (Status, error)
	// Telemetry is available after Status or Post has returned Done.
	Telemetry() (Telemetry, error)
	// Release frees the request. While it is in progress it fails with ErrActive and
	// the request stays valid.
	Release() error
}

// Transport is one NIXL agent. All methods may be called from any thread at any time.
type Transport interface {
	// Name is this agent's name as peers know it.
	Name() string
	// Register makes memory known to NIXL. It must stay mapped until released.
	Register(mem Mem, ranges []Desc) (Registration, error)
	// Metadata is what a peer needs to reach this agent and its registered memory;
	// get it after registering.
	Metadata() ([]byte, error)
	// Load makes a peer reachable from its metadata and returns its name. Loading the
	// same agent a second time is an error or a no-op, depending on the backend:
	// Unload it first.
	Load(metadata []byte) (agent string, err error)
	// Unload forgets a peer. While transfers to it are in progress it fails with ErrActive.
	Unload(agent string) error
	// Connect opens the connections to a loaded peer ahead of the first transfer.
	Connect(agent string) error

	// Prepare validates a list once so that Make can pick from it by index. agent ""
	// means this agent's own memory.
	Prepare(agent string, mem Mem, descs []Desc) (List, error)
	// Make builds a request from entries of two prepared lists, pairwise. NIXL joins
	// neighbours whose indices both rise by one and whose memory is adjacent.
	Make(op Op, local List, localIdx []int32, remote List, remoteIdx []int32, notif []byte) (Request, error)
	// Create builds a request from two lists of equal length, pairwise, as they are.
	// The slices may be reused after the call. If notif is not empty the peer receives
	// it after the last byte has landed.
	Create(op Op, mem Mem, local []Desc, remoteMem Mem, remote []Desc, agent string, notif []byte) (Request, error)

	// Notify sends a message of its own to a loaded peer. It does not wait: the message
	// may leave only as this agent polls.
	Notify(agent string, payload []byte) error
	// Notifications drains what has arrived, without blocking, and drives the backend's
	// progress. Within one sender the order of arrival is kept.
	Notifications() ([]Notification, error)

	// Close releases the agent. While a request or list is not released it fails with
	// ErrActive and the agent stays open.
	Close() error
}
