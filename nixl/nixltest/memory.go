package nixltest

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/nixlpush/nixlpush/nixl"
)

// Buffer is size bytes of memory and the descriptor to register it with.
func Buffer(size int) ([]byte, nixl.Desc) {
	b := make([]byte, size)
	return b, nixl.Desc{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), Len: uint64(size)}
}

// registration keeps memory reachable while it is registered.
type registration struct {
	agent   *agent
	ranges  []memory
	anchors []unsafe.Pointer
}

// Register takes memory of this process, whatever mem says: heap memory that the
// garbage collector may then not free, or mapped memory; not variables on a stack.
func (a *agent) Register(mem nixl.Mem, ranges []nixl.Desc) (nixl.Registration, error) {
	if err := a.enter("register memory"); err != nil {
		return nil, err
	}
	defer a.fabric.mu.Unlock()
	if len(ranges) == 0 {
		return nil, fmt.Errorf("nixltest: register memory: %w: no ranges", nixl.ErrInvalid)
	}
	r := &registration{agent: a}
	for _, d := range ranges {
		r.ranges = append(r.ranges, memory{mem, d})
		r.anchors = append(r.anchors, at(d.Addr))
	}
	a.registered = append(a.registered, r)
	return r, nil
}

func (r *registration) Release() error {
	if err := r.agent.enter("deregister memory"); err != nil {
		return nil // its agent is gone, and the registration with it
	}
	defer r.agent.fabric.mu.Unlock()
	index := slices.Index(r.agent.registered, r)
	if index < 0 {
		return fmt.Errorf("nixltest: deregister memory: %w: it is released already", nixl.ErrInvalid)
	}
	r.agent.registered = slices.Delete(r.agent.registered, index, index+1)
	r.anchors = nil
	return nil
}

// ranges lists what is registered now.
func (a *agent) ranges() []memory {
	var all []memory
	for _, r := range a.registered {
		all = append(all, r.ranges...)
	}
	return all
}

// move copies n bytes between two addresses of this process.
func move(to, from, n uint64) {
	copy(unsafe.Slice((*byte)(at(to)), n), unsafe.Slice((*byte)(at(from)), n))
}

// at is the pointer for an address that a registration vouches for.
func at(address uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
