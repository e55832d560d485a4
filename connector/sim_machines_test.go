package connector

import (
	"fmt"
	"slices"
	"strings"
)

// simMachine is one kind of thing that has states (see docs/protocol.md), and what can happen to it.
type simMachine struct {
	name           string
	states, events []string
	nevers         []simNever
}

// simNever is pairs of a state and an event that cannot meet, and why.
type simNever struct {
	why            string
	states, events []string
}

var simMachines = []*simMachine{
	{"expectation",
		[]string{"none", "announced", "connecting", "registered", "writing", "partly", "ending", "fenced"},
		[]string{"expect", "replaced", "cancel", "handshake", "no handshake", "WRITING", "DONE", "FAIL", "CANCELLED", "stranger", "deadline", "fence", "close"},
		[]simNever{
			{"Submit refuses a tag that is in use", []string{"connecting", "registered", "writing", "partly", "ending", "fenced"}, []string{"expect"}},
			{"only one with blocks has the id", []string{"none", "announced"}, []string{"replaced"}},
			{"nobody waits for a handshake", []string{"none", "registered", "writing", "partly", "ending", "fenced"}, []string{"handshake", "no handshake"}},
			{"it has no epoch yet", []string{"announced", "connecting"}, []string{"WRITING", "DONE", "FAIL", "CANCELLED", "stranger"}},
			{"who is a stranger is not known", []string{"none"}, []string{"stranger"}},
			{"nobody was asked to stop", []string{"registered", "writing", "partly"}, []string{"CANCELLED"}},
			{"there is no deadline, or it is over", []string{"none", "announced", "fenced"}, []string{"deadline"}},
			{"a fence follows the deadline", []string{"none", "announced", "connecting", "registered", "writing", "partly", "ending"}, []string{"fence"}},
			{"nothing is held", []string{"none"}, []string{"close"}},
		},
	},
	{"registration",
		[]string{"unknown", "past", "waiting", "matched", "queued", "posted"},
		[]string{"the same", "a newer one", "CANCEL", "offer", "decline", "ttl ends", "written", "write fails", "close"},
		[]simNever{
			{"they meet what waits", []string{"past", "matched", "queued", "posted"}, []string{"offer", "decline"}},
			{"nothing is held", []string{"unknown", "past"}, []string{"ttl ends", "written", "write fails", "close"}},
			{"no WRITE is posted", []string{"waiting", "matched", "queued"}, []string{"written", "write fails"}},
		},
	},
	{"offer",
		[]string{"none", "waiting", "matched", "writing", "failing"},
		[]string{"registration", "heartbeat", "handshake", "no handshake", "CANCEL", "cancel", "lease ends", "written", "write fails", "close"},
		[]simNever{
			{"nobody waits for a handshake", []string{"none", "waiting", "writing", "failing"}, []string{"handshake", "no handshake"}},
			{"it has no registration", []string{"waiting"}, []string{"CANCEL"}},
			{"nothing is held", []string{"none"}, []string{"lease ends", "written", "write fails", "close"}},
			{"no WRITE is posted", []string{"waiting", "matched"}, []string{"written", "write fails"}},
		},
	},
}

func (m *simMachine) never(state, event string) bool {
	return slices.ContainsFunc(m.nevers, func(n simNever) bool {
		return slices.Contains(n.states, state) && slices.Contains(n.events, event)
	})
}

// missing lists the pairs that were not met although they can be, or were although they cannot.
func (m *simMachine) missing(cells map[cell]int) (list []string) {
	for _, event := range m.events {
		for _, state := range m.states {
			if (cells[cell{m.name, state, event}] == 0) != m.never(state, event) {
				list = append(list, state+" / "+event)
			}
		}
	}
	return list
}

func (m *simMachine) print(b *strings.Builder, cells map[cell]int) {
	fmt.Fprintf(b, "\n%-14s", m.name)
	for _, state := range m.states {
		fmt.Fprintf(b, "%11s", state)
	}
	for _, event := range m.events {
		fmt.Fprintf(b, "\n%-14s", event)
		for _, state := range m.states {
			if n := cells[cell{m.name, state, event}]; n > 0 {
				fmt.Fprintf(b, "%11d", n)
			} else {
				fmt.Fprintf(b, "%11s", "-")
			}
		}
	}
	b.WriteByte('\n')
	if list := m.missing(cells); list != nil {
		fmt.Fprintf(b, "not as expected: %s\n", strings.Join(list, ", "))
	}
}
