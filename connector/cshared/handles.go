package main

import (
	"errors"
	"fmt"
	"sync"

	"github.com/nixlpush/nixlpush/connector"
	"github.com/nixlpush/nixlpush/sidechannel"
)

// errHandle: no such handle. It was never opened, it is closed, or of the other kind.
var errHandle = errors.New("no such handle")

// firstHandle is high, so that a descriptor or a rank passed by mistake is no handle.
const firstHandle = 1<<32 + 1

// table gives numbers to what the embedder holds. A number is never used again.
type table struct {
	mu   sync.RWMutex
	next uint64
	open map[uint64]any
}

// handles has those of the process, of both kinds.
var handles = table{next: firstHandle, open: map[uint64]any{}}

func (t *table) add(v any) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.next
	t.next++
	t.open[h] = v
	return h
}

func (t *table) count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.open)
}

// lookUp finds what a handle stands for.
func lookUp[T any](t *table, handle uint64) (T, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return typed[T](t, handle)
}

// remove finds it and ends the handle: of several calls at once, one succeeds.
func remove[T any](t *table, handle uint64) (T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, err := typed[T](t, handle)
	if err == nil {
		delete(t.open, handle)
	}
	return v, err
}

// typed is lookUp under the lock.
func typed[T any](t *table, handle uint64) (T, error) {
	v, ok := t.open[handle].(T)
	if ok {
		return v, nil
	}
	want := kind(any(v))
	switch {
	case t.open[handle] != nil:
		return v, fmt.Errorf("%w: %d is %s, not %s", errHandle, handle, kind(t.open[handle]), want)
	case handle >= firstHandle && handle < t.next:
		return v, fmt.Errorf("%w: %d is closed", errHandle, handle)
	}
	return v, fmt.Errorf("%w: %d was never %s", errHandle, handle, want)
}

// kind is the name of what a handle stands for.
func kind(v any) string {
	switch v.(type) {
	case *connector.Engine:
		return "an engine"
	case *sidechannel.Server:
		return "a side channel"
	}
	return fmt.Sprintf("%T", v)
}
