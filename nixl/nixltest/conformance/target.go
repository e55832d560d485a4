package conformance

import (
	"fmt"
	"hash/crc64"
	"math/rand/v2"
	"sync"
	"time"
	"unsafe"

	"github.com/nixlpush/nixlpush/nixl"
)

// Target is the passive side of a pair.
type Target interface {
	// Allocate makes registered memory that holds the pattern of the seed.
	Allocate(size int, seed byte) (nixl.Desc, error)
	Free(nixl.Desc) error
	// Sum is the checksum of a range within allocated memory.
	Sum(nixl.Desc) (uint64, error)
	Metadata() ([]byte, error)
	Load(metadata []byte) (string, error)
	Unload(agent string) error
	Notify(agent string, payload []byte) error
	// Watch has every later Arrival carry the checksum that the range had then.
	Watch(nixl.Desc) error
	// Arrivals takes the notifications since the last call.
	Arrivals() ([]Arrival, error)
	// Poll sets how often the target polls, 0 for never.
	Poll(every time.Duration) error
	// Kill ends the target without any farewell.
	Kill() error
}

// Arrival is a notification as the target saw it.
type Arrival struct {
	nixl.Notification
	Sum uint64 // of the watched range when the notification was taken
}

var crcTable = crc64.MakeTable(crc64.ECMA)

func checksum(b []byte) uint64 { return crc64.Checksum(b, crcTable) }

// pattern fills b with bytes that follow from the seed.
func pattern(b []byte, seed byte) {
	source := rand.NewChaCha8([32]byte{seed})
	source.Read(b)
}

func allocate(size int, seed byte) ([]byte, nixl.Desc) {
	b := make([]byte, size)
	pattern(b, seed)
	return b, nixl.Desc{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), Len: uint64(size)}
}

// LocalTarget is a Target over a Transport of this process, with a goroutine that polls.
type LocalTarget struct {
	transport nixl.Transport
	kill      func()
	every     chan time.Duration
	stopped   chan struct{}

	mu       sync.Mutex
	blocks   map[uint64]block
	watched  []byte
	arrivals []Arrival
	err      error // of polling
}

type block struct {
	bytes        []byte
	registration nixl.Registration
}

// NewLocalTarget starts a target. kill ends the transport without farewell.
func NewLocalTarget(transport nixl.Transport, kill func()) *LocalTarget {
	t := &LocalTarget{
		transport: transport,
		kill:      kill,
		every:     make(chan time.Duration),
		stopped:   make(chan struct{}),
		blocks:    map[uint64]block{},
	}
	go t.poll(pollEvery)
	return t
}

func (t *LocalTarget) poll(every time.Duration) {
	defer close(t.stopped)
	for open := true; open; {
		var tick <-chan time.Time
		if every > 0 {
			tick = time.After(every)
		}
		select {
		case <-tick:
			t.take()
		case every, open = <-t.every:
		}
	}
}

func (t *LocalTarget) take() {
	notifications, err := t.transport.Notifications()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.err = err
	}
	for _, n := range notifications {
		t.arrivals = append(t.arrivals, Arrival{n, checksum(t.watched)})
	}
}

// Close ends the polling; it leaves the transport alone.
func (t *LocalTarget) Close() {
	close(t.every)
	<-t.stopped
}

func (t *LocalTarget) Poll(every time.Duration) error {
	t.every <- every
	return nil
}

func (t *LocalTarget) Allocate(size int, seed byte) (nixl.Desc, error) {
	b, d := allocate(size, seed)
	registration, err := t.transport.Register(nixl.DRAM, []nixl.Desc{d})
	if err != nil {
		return nixl.Desc{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.blocks[d.Addr] = block{b, registration}
	return d, nil
}

func (t *LocalTarget) Free(d nixl.Desc) error {
	t.mu.Lock()
	b := t.blocks[d.Addr]
	delete(t.blocks, d.Addr)
	t.watched = nil
	t.mu.Unlock()
	if b.registration == nil {
		return fmt.Errorf("nothing is allocated at %#x", d.Addr)
	}
	return b.registration.Release()
}

// bytes is the memory of a range within an allocated one.
func (t *LocalTarget) bytes(d nixl.Desc) ([]byte, error) {
	for start, b := range t.blocks {
		if d.Addr >= start && d.Addr+d.Len <= start+uint64(len(b.bytes)) {
			return b.bytes[d.Addr-start:][:d.Len], nil
		}
	}
	return nil, fmt.Errorf("no allocated memory holds %#x+%d", d.Addr, d.Len)
}

func (t *LocalTarget) Sum(d nixl.Desc) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, err := t.bytes(d)
	return checksum(b), err
}

func (t *LocalTarget) Watch(d nixl.Desc) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, err := t.bytes(d)
	t.watched = b
	return err
}

func (t *LocalTarget) Arrivals() ([]Arrival, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.arrivals
	t.arrivals = nil
	return taken, t.err
}

func (t *LocalTarget) Metadata() ([]byte, error)            { return t.transport.Metadata() }
func (t *LocalTarget) Load(metadata []byte) (string, error) { return t.transport.Load(metadata) }
func (t *LocalTarget) Unload(agent string) error            { return t.transport.Unload(agent) }
func (t *LocalTarget) Notify(agent string, payload []byte) error {
	return t.transport.Notify(agent, payload)
}

func (t *LocalTarget) Kill() error {
	t.Close()
	t.kill()
	return nil
}
