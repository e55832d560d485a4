package nixl

import (
	"fmt"
	"time"

	"github.com/nixlpush/nixlpush/nixl/internal/capi"
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

// request is a transfer of an agent.
type request struct {
	agent  *agent
	peer   string
	handle capi.Request
	phase  phase
	err    error // of phase failed
}

func (r *request) Post() (Status, error) {
	if err := r.agent.enter(); err != nil {
		return 0, fmt.Errorf("nixl: post request: %w", err)
	}
	defer r.agent.mu.RUnlock()
	switch r.phase {
	case active:
		return 0, fmt.Errorf("nixl: post request: %w", ErrActive)
	case released:
		return 0, fmt.Errorf("nixl: post request: %w: it is released", ErrInvalid)
	}
	// Counted before NIXL knows of it, so that Unload cannot come between.
	r.agent.active.add(r.peer)
	r.phase = active
	return r.moveTo("post request", r.agent.capi.Post(r.handle))
}

func (r *request) Status() (Status, error) {
	if err := r.agent.enter(); err != nil {
		return 0, fmt.Errorf("nixl: get status of request: %w", err)
	}
	defer r.agent.mu.RUnlock()
	return r.poll()
}

// poll is Status within a call.
func (r *request) poll() (Status, error) {
	switch r.phase {
	case active:
		return r.moveTo("get status of request", r.agent.capi.Status(r.handle))
	case done:
		return Done, nil
	case failed:
		return 0, r.err
	case released:
		return 0, fmt.Errorf("nixl: get status of request: %w: it is released", ErrInvalid)
	}
	return 0, fmt.Errorf("nixl: get status of request: %w: it is not posted", ErrInvalid)
}

// moveTo notes what NIXL said of an active request.
func (r *request) moveTo(call string, status capi.Status) (Status, error) {
	if status == capi.InProgress {
		return InProgress, nil
	}
	r.agent.active.remove(r.peer)
	if status == capi.OK {
		r.phase = done
		return Done, nil
	}
	r.phase = failed
	r.err = check(call, status)
	return 0, r.err
}

func (r *request) Telemetry() (Telemetry, error) {
	if err := r.agent.enter(); err != nil {
		return Telemetry{}, fmt.Errorf("nixl: get telemetry: %w", err)
	}
	defer r.agent.mu.RUnlock()
	if r.phase != done {
		return Telemetry{}, fmt.Errorf("nixl: get telemetry: %w: the request is not done", ErrInvalid)
	}
	t, status := r.agent.capi.Telemetry(r.handle)
	return Telemetry{
		Post:        time.Duration(t.PostUs) * time.Microsecond,
		Transfer:    time.Duration(t.TransferUs) * time.Microsecond,
		Bytes:       t.Bytes,
		Descriptors: t.Descriptors,
	}, check("get telemetry", status)
}

// Release never reaches NIXL while the transfer is in progress: NIXL would take the
// request back while the backend still reads and writes its memory.
func (r *request) Release() error {
	if err := r.agent.enter(); err != nil {
		return fmt.Errorf("nixl: release request: %w", err)
	}
	defer r.agent.mu.RUnlock()
	switch r.phase {
	case released:
		return fmt.Errorf("nixl: release request: %w: it is released already", ErrInvalid)
	case active:
		if status, err := r.poll(); err == nil && status == InProgress {
			return fmt.Errorf("nixl: release request: %w", ErrActive)
		}
	}
	if err := check("release request", r.agent.capi.Release(r.handle)); err != nil {
		return err
	}
	r.phase = released
	r.agent.open.Add(-1)
	return nil
}
