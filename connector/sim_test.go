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
	synctest.Test(t, func(t *testing.T) {
		s := newSim(seed, tally)
		broken := s.run()
		ok = broken == ""
		if !ok || *simSeed > 0 {
			s.print()
		}
		if !ok {
			t.Errorf("rule %s is violated; to replay: go test ./connector -run TestSim -seed %d", broken, seed)
		}
		tally.requests.Add(uint64(s.requests))
		s.end()
	})
	return ok
}

// print writes the trace at once: what went wrong may also keep the bubble from ending.
func (s *sim) print() {
	simPrint.Lock()
	defer simPrint.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(os.Stderr, s.trace.String())
}
