package main

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nixlpush/nixlpush/connector"
	"github.com/nixlpush/nixlpush/sidechannel"
)

func newTable() *table { return &table{next: firstHandle, open: map[uint64]any{}} }

func TestHandleIsNeverUsedAgain(t *testing.T) {
	handles := newTable()
	seen := map[uint64]bool{0: true}
	for range 1000 {
		h := handles.add(&connector.Engine{})
		if seen[h] {
			t.Fatalf("handle %d was given before", h)
		}
		seen[h] = true
		if _, err := remove[*connector.Engine](handles, h); err != nil {
			t.Fatal(err)
		}
	}
	if n := handles.count(); n != 0 {
		t.Errorf("%d handles are left", n)
	}
}

func TestWrongHandleSaysWhatItIs(t *testing.T) {
	handles := newTable()
	engine := handles.add(&connector.Engine{})
	channel := handles.add(&sidechannel.Server{})
	closed := handles.add(&connector.Engine{})
	if _, err := remove[*connector.Engine](handles, closed); err != nil {
		t.Fatal(err)
	}
	if _, err := lookUp[*connector.Engine](handles, engine); err != nil {
		t.Errorf("the right handle: %v", err)
	}
	for _, c := range []struct {
		name   string
		handle uint64
		want   string
	}{
		{"zero", 0, "never an engine"},
		{"a descriptor", 5, "never an engine"},
		{"not given yet", closed + 1, "never an engine"},
		{"closed", closed, "is closed"},
		{"of the other kind", channel, "is a side channel, not an engine"},
	} {
		_, err := remove[*connector.Engine](handles, c.handle)
		if !errors.Is(err, errHandle) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if n := handles.count(); n != 2 {
		t.Errorf("%d handles are left of 2", n)
	}
}

func TestOneOfManyClosesSucceeds(t *testing.T) {
	handles := newTable()
	h := handles.add(&connector.Engine{})
	var successes atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := remove[*connector.Engine](handles, h); err == nil {
				successes.Add(1)
			}
		})
	}
	wg.Wait()
	if n := successes.Load(); n != 1 {
		t.Errorf("%d closes succeeded", n)
	}
}
