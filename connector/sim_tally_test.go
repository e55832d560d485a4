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

// simMachine is one kind of thing that has states. Pairs of state and event that cannot be
// have a reason.
type simMachine struct {
	name           string
	states, events []string
	impossible     map[string]string // "state event", "state *" or "* event"
}

func (m *simMachine) reason(state, event string) string {
	for _, key := range []string{state + " " + event, "* " + event, state + " *"} {
		if why := m.impossible[key]; why != "" {
			return why
		}
	}
	return ""
}

func (m *simMachine) print(b *strings.Builder, cells map[cell]int) {
	fmt.Fprintf(b, "\n%-16s", m.name)
	for _, state := range m.states {
		fmt.Fprintf(b, "%12s", state)
	}
	b.WriteByte('\n')
	var missing []string
	for _, event := range m.events {
		fmt.Fprintf(b, "%-16s", event)
		for _, state := range m.states {
			n := cells[cell{m.name, state, event}]
			switch impossible := m.reason(state, event) != ""; {
			case n > 0 && impossible:
				fmt.Fprintf(b, "%11d!", n)
			case n > 0:
				fmt.Fprintf(b, "%12d", n)
			case impossible:
				fmt.Fprintf(b, "%12s", "-")
			default:
				fmt.Fprintf(b, "%12s", "0")
				missing = append(missing, state+" "+event)
			}
		}
		b.WriteByte('\n')
	}
	if missing != nil {
		fmt.Fprintf(b, "not covered: %s\n", strings.Join(missing, ", "))
	}
}

var simMachines = []*simMachine{
	{"expectation",
		[]string{"none", "announced", "connecting", "registered", "writing", "partly", "ending", "fenced"},
		[]string{"expect", "replaced", "cancel", "handshake", "no handshake", "WRITING", "DONE", "FAIL", "CANCELLED", "stranger", "deadline", "fence", "close"},
		map[string]string{},
	},
	{"registration",
		[]string{"unknown", "past", "waiting", "matched", "queued", "posted"},
		[]string{"the same", "a newer one", "CANCEL", "offer", "decline", "ttl ends", "written", "write fails", "close"},
		map[string]string{},
	},
	{"offer",
		[]string{"none", "waiting", "matched", "writing", "failing"},
		[]string{"registration", "heartbeat", "handshake", "no handshake", "CANCEL", "cancel", "lease ends", "written", "write fails", "close"},
		map[string]string{},
	},
}
