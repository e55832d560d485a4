package connector

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	simSeed  = flag.Uint64("seed", 0, "simulate this seed only, and print what happens")
	simSeeds = flag.Uint64("sim.seeds", 200, "how many seeds to simulate")
	simFirst = flag.Uint64("sim.first", 1, "the first of them")
	simTime  = flag.Duration("sim.time", 0, "end earlier than after all seeds")
)

// TestSim runs the engines under all faults that there are. See docs/testing.md.
func TestSim(t *testing.T) {
	first, seeds := *simFirst, *simSeeds
	if *simSeed > 0 {
		first, seeds = *simSeed, 1
	}
	tally := newSimTally()
	var next, runs atomic.Uint64
	var failed atomic.Bool
	start := time.Now()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for n := next.Add(1) - 1; n < seeds && !failed.Load(); n = next.Add(1) - 1 {
				if *simTime > 0 && time.Since(start) > *simTime {
					return
				}
				if !simulate(t, first+n, tally) {
					failed.Store(true)
					t.Fail()
				}
				runs.Add(1)
			}
		}()
	}
	workers.Wait()
	if n := tally.holes(); n > 0 && runs.Load() >= simCovers {
		t.Errorf("%d pairs of state and event are not as expected", n)
	}
	t.Logf("%d runs in %v, %d requests\n%v", runs.Load(), time.Since(start).Round(time.Millisecond), tally.requests.Load(), tally)
}

// simCovers is how many runs meet every event in every state.
const simCovers = 10_000

var simPrint sync.Mutex // one trace at a time

// simulate runs one seed in a bubble of its own, and reports whether all rules have held.
func simulate(t *testing.T, seed uint64, tally *simTally) (ok bool) {
	ended := make(chan struct{})
	defer close(ended)
	go watch(seed, ended)
	synctest.Test(t, func(t *testing.T) {
		s := newSim(seed, tally)
		s.run()
		tally.requests.Add(uint64(s.requests))
		if !s.sound() {
			s.print() // at once: what is wrong may also keep the bubble from ending
			s.end()
		} else if s.end(); !s.sound() || *simSeed > 0 {
			s.print()
		}
		ok = s.sound()
	})
	return ok
}

// simTooLong is how long a run may take in earnest: some hundred times what it does.
const simTooLong = 30 * time.Second

// watch ends the process if a run does not end: what is wrong may keep its bubble going for good.
func watch(seed uint64, ended chan struct{}) {
	select {
	case <-ended:
	case <-time.After(simTooLong):
		fmt.Fprintf(os.Stderr, "a run does not end: rule S5 is violated; to replay: go test ./connector -run TestSim -seed %d\n", seed)
		os.Exit(1)
	}
}

// print writes the trace, and the rule that was violated, if any.
func (s *sim) print() {
	simPrint.Lock()
	defer simPrint.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(os.Stderr, s.trace.String())
	if s.broken != "" {
		fmt.Fprintf(os.Stderr, "rule %s is violated; to replay: go test ./connector -run TestSim -seed %d\n", s.broken, s.seed)
	}
}
