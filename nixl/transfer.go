package nixl

import (
	"fmt"

	"github.com/nixlpush/nixlpush/nixl/internal/capi"
)

// list is a prepared descriptor list of an agent.
type list struct {
	agent    *agent
	peer     string // "" for the agent's own memory
	prepared capi.Prepared
	released bool
}

func (a *agent) Prepare(name string, mem Mem, descs []Desc) (List, error) {
	if len(descs) == 0 {
		return nil, fmt.Errorf("nixl: prepare list: %w: it is empty", ErrInvalid)
	}
	if name != "" {
		if err := checkName(name); err != nil {
			return nil, err
		}
	}
	l := &list{agent: a, peer: name}
	err := a.call("prepare list", func() (status capi.Status) {
		if l.prepared, status = a.capi.Prepare(name, int(mem), toCAPI(descs)); status == capi.OK {
			a.open.Add(1)
		}
		return status
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (l *list) Release() error {
	return l.agent.call("release list", func() capi.Status {
		if l.released {
			return capi.InvalidState
		}
		l.released = true
		l.agent.open.Add(-1)
		return l.agent.capi.ReleasePrepared(l.prepared)
	})
}

func (a *agent) Make(op Op, local List, localIdx []int32, remote List, remoteIdx []int32, notif []byte) (Request, error) {
	from, fromOK := local.(*list)
	to, toOK := remote.(*list)
	if !fromOK || !toOK || from.agent != a || to.agent != a || from.released || to.released {
		return nil, fmt.Errorf("nixl: make request: %w: a list is released or not of this transport", ErrInvalid)
	}
	if len(localIdx) == 0 || len(localIdx) != len(remoteIdx) {
		return nil, fmt.Errorf("nixl: make request: %w: %d local and %d remote indices", ErrInvalid, len(localIdx), len(remoteIdx))
	}
	return a.newRequest("make request", to.peer, func() (capi.Request, capi.Status) {
		return a.capi.Make(int(op), from.prepared, localIdx, to.prepared, remoteIdx, notif)
	})
}

func (a *agent) Create(op Op, mem Mem, local []Desc, remoteMem Mem, remote []Desc, name string, notif []byte) (Request, error) {
	if len(local) == 0 || len(local) != len(remote) {
		return nil, fmt.Errorf("nixl: create request: %w: %d local and %d remote descriptors", ErrInvalid, len(local), len(remote))
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	return a.newRequest("create request", name, func() (capi.Request, capi.Status) {
		lists := a.takeLists()
		defer a.keepLists(lists, len(local))
		return a.capi.Create(lists, int(op), int(mem), toCAPI(local), int(remoteMem), toCAPI(remote), name, notif)
	})
}

func (a *agent) newRequest(what, peer string, build func() (capi.Request, capi.Status)) (Request, error) {
	r := &request{agent: a, peer: peer}
	err := a.call(what, func() (status capi.Status) {
		if r.handle, status = build(); status == capi.OK {
			a.open.Add(1)
		}
		return status
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// What is kept of the lists that requests are created from.
const (
	keptLists = 8       // pairs: one for each thread that creates
	keptDescs = 1 << 19 // descriptors of each, 24 MiB a pair; what has grown beyond is freed
)

func (a *agent) takeLists() *capi.Lists {
	select {
	case l := <-a.lists:
		return l
	default:
		return new(capi.Lists)
	}
}

func (a *agent) keepLists(l *capi.Lists, descs int) {
	if descs <= keptDescs {
		select {
		case a.lists <- l:
			return
		default:
		}
	}
	a.capi.FreeLists(l)
}
