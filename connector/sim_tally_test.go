package connector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// simTally counts over all runs.
type simTally struct {
	requests atomic.Uint64

	mu       sync.Mutex
	faults   map[string]int
	outcomes map[string]int
	cells    map[cell]int
}

func newSimTally() *simTally {
	return &simTally{faults: map[string]int{}, outcomes: map[string]int{}, cells: map[cell]int{}}
}

func (t *simTally) fault(kind string) {
	t.mu.Lock()
	t.faults[kind]++
	t.mu.Unlock()
}

func (t *simTally) outcome(ev Event) {
	t.mu.Lock()
	t.outcomes[fmt.Sprint(kindName[ev.Kind], ", reason ", ev.Reason)]++
	t.mu.Unlock()
}

// holes is how many pairs of state and event were not met although they can be.
func (t *simTally) holes() (n int) {
	for _, m := range simMachines {
		n += len(m.missing(t.cells))
	}
	return n
}

func (t *simTally) String() string {
	var b strings.Builder
	for _, table := range []map[string]int{t.faults, t.outcomes} {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			fmt.Fprintf(&b, "%10d  %s\n", table[name], name)
		}
	}
	for _, m := range simMachines {
		m.print(&b, t.cells)
	}
	return b.String()
}
