package connector

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
)

// sim is one run: engines, their schedulers, a router and faults, all from one seed, in a
// bubble of virtual time. The goroutine that calls run is the driver: it plays the schedulers
// and the router; all else are the engines' own goroutines.
type sim struct {
	seed   uint64
	rng    *rand.Rand // the driver's
	rates  simRates
	fabric *nixltest.Fabric
	tally  *simTally

	// The driver's.
	agenda               agenda
	numbers              int // of appointments made
	producers, consumers []*simEngine
	engines              []*simEngine // all
	outsider             nixl.Transport
	requests             int
	all                  []*simRequest
	lastX                string        // that another request may have, too
	traffic              time.Duration // for which requests arrive
	pace                 time.Duration // longest time between two
	funerals             sync.WaitGroup
	wanted               map[string]bool // see interest

	diceMu sync.Mutex
	thrown map[uint64]uint64

	mu         sync.Mutex // for what follows, and for the schedulers' tables; taken within the fabric's lock
	trace      simTrace
	broken     string // the rule that was violated
	ranks      map[string]*simRank
	byPort     map[int]*simEngine
	registered map[registrationKey]*simLeg
	// registeredID is the same by agent and request, where there are no epochs.
	registeredID map[string]*simLeg
	epochs       []uint64
	wire         [][]byte   // messages that were sent
	rng2         *rand.Rand // for which of them is kept
}

func newSim(seed uint64, tally *simTally) *sim {
	s := &sim{seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), rng2: rand.New(rand.NewPCG(seed, 2)), tally: tally,
		thrown: map[uint64]uint64{}, wanted: map[string]bool{}, ranks: map[string]*simRank{}, byPort: map[int]*simEngine{}, registered: map[registrationKey]*simLeg{}, registeredID: map[string]*simLeg{}}
	s.rates = newSimRates(s.rng)
	s.trace.start = time.Now()
	s.fabric = newSimFabric(s)
	s.outsider, _ = s.fabric.Agent("outsider")
	s.traffic = between(s.rng, 300*time.Millisecond, 900*time.Millisecond)
	s.pace = between(s.rng, 10*time.Millisecond, 80*time.Millisecond)
	for i := range 1 + s.rng.IntN(2) {
		s.producers = append(s.producers, s.engine(fmt.Sprint("P", i), 7001+i, true))
	}
	for i := range 1 + s.rng.IntN(2) {
		s.consumers = append(s.consumers, s.engine(fmt.Sprint("D", i), 7101+i, false))
	}
	return s
}

func (s *sim) engine(name string, port int, producer bool) *simEngine {
	e := &simEngine{s: s, name: name, producer: producer, port: port, tp: 1 + s.rng.IntN(2)}
	s.byPort[port] = e
	s.engines = append(s.engines, e)
	e.boot()
	return e
}

// run plays everything, until a rule is violated.
func (s *sim) run() {
	s.note("sim", "seed %d: %+v", s.seed, s.rates)
	s.arrive()
	s.misfortunes()
	s.after(1337*time.Nanosecond, s.schedule) // not at a time at which a loop looks
	for len(s.agenda) > 0 && s.sound() {
		next := heap.Pop(&s.agenda).(appointment)
		time.Sleep(time.Until(next.at))
		next.what()
	}
	if s.sound() {
		s.finish()
	}
}

// schedule lets every scheduler look at its events every few milliseconds, until all is over.
func (s *sim) schedule() {
	now, idle, interest := time.Now(), true, s.interest()
	for _, e := range s.engines {
		if e.up() && !e.standing() && now.After(e.deaf) {
			e.poll()
			e.checkBounds(now, interest)
		}
		idle = idle && len(e.legs) == 0 && e.state.Load() != simClosing && !e.standing()
	}
	if since := now.Sub(s.trace.start); idle && since > s.traffic && len(s.agenda) == 0 {
		return
	} else if since > simForever {
		s.violated("S4", "there is no end")
		return
	}
	s.after(3*time.Millisecond, s.schedule)
}

// simForever is longer than any run can take.
const simForever = 30 * time.Second

func (e *simEngine) poll() {
	var out [64]Event
	for tp, r := range e.ranks {
		events := out[:r.Poll(out[:])]
		slices.SortFunc(events, func(a, b Event) int { return cmp.Compare(a.Tag, b.Tag) }) // those of one sweep are in no order
		for _, ev := range events {
			e.event(tp, ev)
		}
	}
}

// finish checks that nothing is left, and ends all engines.
func (s *sim) finish() {
	s.tell("sim", "the last request has ended")
	time.Sleep(simGrace)
	for _, e := range s.engines {
		for _, r := range e.ranks {
			if e.up() {
				r.checkEmpty()
			}
		}
	}
	if s.rates.calm {
		for _, r := range s.all {
			r.judge()
		}
	}
}

// simGrace is how long tables may keep something after the end of all requests: a registration
// its TTL, an ended one and a decline P's lease, a peer its life; and then the sweeps.
const simGrace = simReceive + simLease + simPeerTTL + 3*sweepIdle + simLate

// end closes what is left, so that the bubble can end.
func (s *sim) end() {
	s.funerals.Wait()
	for _, e := range s.engines {
		if e.up() {
			e.state.Store(simDown)
			e.bury(e.ranks, nil)
		}
	}
	s.funerals.Wait()
	s.outsider.Close()
}

// appointment is something that the driver will do.
type appointment struct {
	at     time.Time
	number int
	what   func()
}

// agenda is a heap of them.
type agenda []appointment

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at.Before(a[j].at) || a[i].at.Equal(a[j].at) && a[i].number < a[j].number
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(appointment)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	*a = (*a)[:last]
	return x
}

func (s *sim) at(at time.Time, what func()) {
	s.numbers++
	heap.Push(&s.agenda, appointment{at, s.numbers, what})
}

func (s *sim) after(d time.Duration, what func()) { s.at(time.Now().Add(d), what) }
