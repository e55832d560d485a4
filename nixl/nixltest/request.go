package nixltest

import (
	"fmt"
	"slices"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
)

// phase is where a request stands.
type phase int

const (
	unposted phase = iota
	active
	done
	failed
	released
)

// request is a transfer of an agent; the fabric's lock guards it.
type request struct {
	agent       *agent
	op          nixl.Op
	mem         nixl.Mem
	local       []nixl.Desc
	peer        *peer
	remoteMem   nixl.Mem
	remote      []nixl.Desc
	notif       []byte
	bytes       uint64
	descriptors int // after merging

	phase   phase
	err     error // of phase failed
	outcome Outcome
	landed  bool
	posted  time.Time
	took    time.Duration
}

func (r *request) Post() (nixl.Status, error) {
	if err := r.agent.enter("post request"); err != nil {
		return 0, err
	}
	defer r.agent.fabric.mu.Unlock()
	switch r.phase {
	case active:
		return 0, fmt.Errorf("nixltest: post request: %w", nixl.ErrActive)
	case released:
		return 0, fmt.Errorf("nixltest: post request: %w: it is released", nixl.ErrInvalid)
	}
	if r.agent.peers[r.peer.name] != r.peer {
		return r.fail(nixl.ErrNotFound)
	}
	r.posted = time.Now()
	r.landed = false
	r.outcome = r.agent.fabric.outcome(r.transfer())
	if err := r.outcome.PostErr; err != nil {
		return r.fail(err)
	}
	r.phase = active
	r.agent.active[r.peer.name]++
	r.agent.flying = append(r.agent.flying, r)
	return r.drive()
}

func (r *request) transfer() Transfer {
	return Transfer{Op: r.op, Initiator: r.agent.name, Target: r.peer.name,
		Bytes: r.bytes, Notif: r.notif, Local: r.local, Remote: r.remote}
}

func (r *request) Status() (nixl.Status, error) {
	if err := r.agent.enter("get status"); err != nil {
		return 0, err
	}
	defer r.agent.fabric.mu.Unlock()
	return r.poll()
}

func (r *request) poll() (nixl.Status, error) {
	switch r.phase {
	case done:
		return nixl.Done, nil
	case failed:
		return 0, r.err
	case active:
		return r.drive()
	}
	return 0, fmt.Errorf("nixltest: get status: %w: the request is not posted", nixl.ErrInvalid)
}

// drive moves an active transfer on.
func (r *request) drive() (nixl.Status, error) {
	target := r.agent.fabric.living(r.peer)
	if target == nil {
		return r.fail(nixl.ErrBackend)
	}
	if !r.due() {
		return nixl.InProgress, nil
	}
	if r.outcome.Err != nil {
		return r.fail(r.outcome.Err)
	}
	if !r.landed && !r.land(target) {
		return r.fail(nixl.ErrBackend)
	}
	r.end(done)
	r.took = time.Since(r.posted)
	if len(r.notif) > 0 {
		r.agent.fabric.send(r.agent, target, r.notif)
	}
	return nixl.Done, nil
}

func (r *request) due() bool {
	return !r.outcome.Never && time.Since(r.posted) >= r.outcome.Delay
}

// landIfDue lands an active transfer without ending it.
func (r *request) landIfDue() {
	target := r.agent.fabric.living(r.peer)
	if target != nil && !r.landed && r.due() && r.outcome.Err == nil {
		r.landed = r.land(target)
	}
}

// land copies the bytes, unless memory was deregistered since the request was made.
func (r *request) land(target *agent) bool {
	local, remote := r.agent.ranges(), target.ranges()
	for i := range r.local {
		if !covered(local, r.mem, r.local[i]) || !covered(remote, r.remoteMem, r.remote[i]) {
			return false
		}
	}
	r.agent.fabric.landing(r.transfer())
	for i := range r.local {
		if r.op == nixl.Write {
			move(r.remote[i].Addr, r.local[i].Addr, r.local[i].Len)
		} else {
			move(r.local[i].Addr, r.remote[i].Addr, r.local[i].Len)
		}
	}
	return true
}

// end leaves phase active, if the request is in it.
func (r *request) end(p phase) {
	if r.phase == active {
		r.agent.active[r.peer.name]--
		r.agent.flying = slices.DeleteFunc(r.agent.flying, func(o *request) bool { return o == r })
	}
	r.phase = p
}

func (r *request) fail(cause error) (nixl.Status, error) {
	r.end(failed)
	r.err = fmt.Errorf("nixltest: transfer to %s: %w", r.peer.name, cause)
	return 0, r.err
}

func (r *request) Telemetry() (nixl.Telemetry, error) {
	if err := r.agent.enter("get telemetry"); err != nil {
		return nixl.Telemetry{}, err
	}
	defer r.agent.fabric.mu.Unlock()
	if r.phase != done {
		return nixl.Telemetry{}, fmt.Errorf("nixltest: get telemetry: %w: the request is not done", nixl.ErrInvalid)
	}
	return nixl.Telemetry{Transfer: r.took, Bytes: r.bytes, Descriptors: uint64(r.descriptors)}, nil
}

func (r *request) Release() error {
	if err := r.agent.enter("release request"); err != nil {
		return err
	}
	defer r.agent.fabric.mu.Unlock()
	if r.phase == active {
		if status, err := r.poll(); err == nil && status == nixl.InProgress {
			return fmt.Errorf("nixltest: release request: %w", nixl.ErrActive)
		}
	}
	if r.phase == released {
		return fmt.Errorf("nixltest: release request: %w: it is released already", nixl.ErrInvalid)
	}
	r.phase = released
	r.agent.open--
	return nil
}
