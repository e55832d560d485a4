package nixltest

import (
	"fmt"
	"slices"

	"github.com/nixlpush/nixlpush/nixl"
)

// list is a prepared list; peer is nil for the agent's own memory.
type list struct {
	agent    *agent
	peer     *peer
	mem      nixl.Mem
	descs    []nixl.Desc
	released bool
}

func (a *agent) Prepare(name string, mem nixl.Mem, descs []nixl.Desc) (nixl.List, error) {
	if err := a.enter("prepare list"); err != nil {
		return nil, err
	}
	defer a.fabric.mu.Unlock()
	l := &list{agent: a, mem: mem, descs: slices.Clone(descs)}
	ranges := a.ranges()
	if name != "" {
		var err error
		if l.peer, err = a.peer("prepare list", name); err != nil {
			return nil, err
		}
		ranges = l.peer.ranges
	}
	if err := checkDescs("prepare list", ranges, mem, descs); err != nil {
		return nil, err
	}
	a.open++
	return l, nil
}

func checkDescs(what string, ranges []memory, mem nixl.Mem, descs []nixl.Desc) error {
	if len(descs) == 0 {
		return fmt.Errorf("nixltest: %s: %w: no descriptors", what, nixl.ErrInvalid)
	}
	for _, d := range descs {
		if !covered(ranges, mem, d) {
			return fmt.Errorf("nixltest: %s: %w: memory is not registered", what, nixl.ErrInvalid)
		}
	}
	return nil
}

func (l *list) Release() error {
	if err := l.agent.enter("release list"); err != nil {
		return err
	}
	defer l.agent.fabric.mu.Unlock()
	if l.released {
		return fmt.Errorf("nixltest: release list: %w: it is released already", nixl.ErrInvalid)
	}
	l.released = true
	l.agent.open--
	return nil
}

func (a *agent) Make(op nixl.Op, local nixl.List, localIdx []int32, remote nixl.List, remoteIdx []int32, notif []byte) (nixl.Request, error) {
	if err := a.enter("make request"); err != nil {
		return nil, err
	}
	defer a.fabric.mu.Unlock()
	from, fromOK := local.(*list)
	to, toOK := remote.(*list)
	if !fromOK || !toOK || from.agent != a || to.agent != a || from.peer != nil || to.peer == nil || from.released || to.released {
		return nil, fmt.Errorf("nixltest: make request: %w: a list is released or not of this side", nixl.ErrInvalid)
	}
	if a.peers[to.peer.name] != to.peer {
		return nil, fmt.Errorf("nixltest: make request: %w: %s was unloaded", nixl.ErrNotFound, to.peer.name)
	}
	locals, localErr := pick(from.descs, localIdx)
	remotes, remoteErr := pick(to.descs, remoteIdx)
	if localErr != nil || remoteErr != nil {
		return nil, fmt.Errorf("nixltest: make request: %w: index out of range", nixl.ErrInvalid)
	}
	merge := mergeable(localIdx, remoteIdx, locals, remotes)
	return a.newRequest(request{op: op, mem: from.mem, local: locals, peer: to.peer, remoteMem: to.mem, remote: remotes, descriptors: merge}, notif)
}

func pick(descs []nixl.Desc, indices []int32) ([]nixl.Desc, error) {
	picked := make([]nixl.Desc, len(indices))
	for i, index := range indices {
		if index < 0 || int(index) >= len(descs) {
			return nil, nixl.ErrInvalid
		}
		picked[i] = descs[index]
	}
	return picked, nil
}

// mergeable is the number of descriptors that are left when neighbours are joined
// whose indices both rise by one and whose memory is adjacent on both sides.
func mergeable(localIdx, remoteIdx []int32, local, remote []nixl.Desc) int {
	n := len(local)
	if len(localIdx) != len(remoteIdx) {
		return n // newRequest refuses it
	}
	left := n
	for i := 1; i < n; i++ {
		if localIdx[i] == localIdx[i-1]+1 && remoteIdx[i] == remoteIdx[i-1]+1 &&
			local[i].Addr == local[i-1].Addr+local[i-1].Len && remote[i].Addr == remote[i-1].Addr+remote[i-1].Len {
			left--
		}
	}
	return left
}

func (a *agent) Create(op nixl.Op, mem nixl.Mem, local []nixl.Desc, remoteMem nixl.Mem, remote []nixl.Desc, name string, notif []byte) (nixl.Request, error) {
	if err := a.enter("create request"); err != nil {
		return nil, err
	}
	defer a.fabric.mu.Unlock()
	p, err := a.peer("create request", name)
	if err != nil {
		return nil, err
	}
	if err := checkDescs("create request: local", a.ranges(), mem, local); err != nil {
		return nil, err
	}
	if err := checkDescs("create request: remote", p.ranges, remoteMem, remote); err != nil {
		return nil, err
	}
	return a.newRequest(request{op: op, mem: mem, local: slices.Clone(local), peer: p, remoteMem: remoteMem, remote: slices.Clone(remote), descriptors: len(local)}, notif)
}

func (a *agent) newRequest(r request, notif []byte) (nixl.Request, error) {
	if len(r.local) == 0 || len(r.local) != len(r.remote) {
		return nil, fmt.Errorf("nixltest: new request: %w: %d local and %d remote descriptors", nixl.ErrInvalid, len(r.local), len(r.remote))
	}
	for i := range r.local {
		if r.local[i].Len != r.remote[i].Len {
			return nil, fmt.Errorf("nixltest: new request: %w: lengths differ at %d", nixl.ErrInvalid, i)
		}
		r.bytes += r.local[i].Len
	}
	r.agent = a
	r.notif = slices.Clone(notif)
	a.open++
	return &r, nil
}
