package connector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nixlpush/nixlpush/nixl"
)

// simTally counts over all runs.
type simTally struct {
	mu       sync.Mutex
	faults   map[string]int
	outcomes map[string]int
	requests atomic.Uint64
}

func newSimTally() *simTally { return &simTally{faults: map[string]int{}, outcomes: map[string]int{}} }

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

func (t *simTally) String() string {
	var b strings.Builder
	for _, table := range []map[string]int{t.faults, t.outcomes} {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			fmt.Fprintf(&b, "%10d  %s\n", table[name], name)
		}
	}
	return b.String()
}

type simCoverage struct {
	tally *simTally
	loop  *loop
}

func newSimCoverage(t *simTally) *simCoverage { return &simCoverage{tally: t} }

func (c *simCoverage) look(list []nixl.Notification) {}
