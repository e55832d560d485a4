package nixl

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/nixlpush/nixlpush/nixl/internal/capi"
)

// Both must stay three 64-bit words in the same order: slices of them are the same bytes.
var _ [unsafe.Sizeof(capi.Desc{})]byte = [unsafe.Sizeof(Desc{})]byte{}

func toCAPI(descs []Desc) []capi.Desc {
	return unsafe.Slice((*capi.Desc)(unsafe.Pointer(unsafe.SliceData(descs))), len(descs))
}

// registration is memory registered with an agent.
type registration struct {
	agent    *agent
	mem      Mem
	ranges   []Desc
	released bool
}

func (a *agent) Register(mem Mem, ranges []Desc) (Registration, error) {
	if len(ranges) == 0 {
		return nil, fmt.Errorf("nixl: register memory: %w: no ranges", ErrInvalid)
	}
	r := &registration{agent: a, mem: mem, ranges: slices.Clone(ranges)}
	err := a.call("register memory", func() capi.Status {
		return a.capi.Register(int(mem), toCAPI(r.ranges))
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Release deregisters the memory. After the agent is closed there is nothing left to do.
func (r *registration) Release() error {
	if err := r.agent.enter(); err != nil {
		return nil
	}
	defer r.agent.mu.RUnlock()
	if r.released {
		return fmt.Errorf("nixl: deregister memory: %w: it is released already", ErrInvalid)
	}
	r.released = true
	return check("deregister memory", r.agent.capi.Deregister(int(r.mem), toCAPI(r.ranges)))
}
