package connector

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nixlpush/nixlpush/nixl/nixltest"
)

// What the engines of the simulator are configured with.
const (
	simLease     = 300 * time.Millisecond
	simReceive   = 800 * time.Millisecond
	simHandshake = 200 * time.Millisecond
	simPeerTTL   = 500 * time.Millisecond
)

// simEngine is one vLLM-like engine: a scheduler with a pool of blocks, and its workers.
type simEngine struct {
	s        *sim
	name     string
	producer bool
	port, tp int
	lives    int
	ranks    []*simRank // of this life
	state    atomic.Int32
	stopped  atomic.Int64 // until when its processes stand still, Unix nanoseconds
	deaf     time.Time    // until when its scheduler does not look at events
	next     uint64       // tag

	// The simulation's lock guards what the fabric's hooks look at.
	pool    *simPool
	legs    map[uint64]*simLeg
	cuts    []simCut
	backlog []func() bool // legs that wait for blocks; false: still
}

const (
	simUp int32 = iota
	simClosing
	simDown
)

func (e *simEngine) up() bool { return e.state.Load() == simUp }

// rank is a worker of the engine's present life.
func (e *simEngine) rank(tp int) *simRank {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	return e.ranks[tp]
}

func (e *simEngine) standing() bool { return time.Now().UnixNano() < e.stopped.Load() }

func (e *simEngine) endpoint() Endpoint {
	return Endpoint{EngineID: e.name, Host: "127.0.0.1", Port: e.port, TPSize: e.tp, PPSize: 1}
}

// boot starts a life of an engine: other agents and other memory, the same name and address.
func (e *simEngine) boot() {
	s := e.s
	e.lives++
	var ranks []*simRank
	for tp := range e.tp {
		ranks = append(ranks, e.worker(tp))
	}
	s.mu.Lock()
	e.pool, e.legs, e.backlog, e.ranks = newSimPool(), map[uint64]*simLeg{}, nil, ranks
	for _, r := range ranks {
		s.ranks[r.agent] = r
	}
	s.note(e.name, "is up, life %d", e.lives)
	s.mu.Unlock()
	for _, r := range ranks {
		if err := r.Register(r.cache.layout()); err != nil {
			panic(err)
		}
		seen := r.seen
		r.post(func(l *loop) { seen.loop = l })
	}
	e.state.Store(simUp)
}

func (e *simEngine) worker(tp int) *simRank {
	s := e.s
	r := &simRank{engine: e, agent: fmt.Sprintf("%s.%d#%d", e.name, tp, e.lives), cache: newSimCache(tp, e.tp),
		waker: newSimWaker(mix(s.seed + uint64(e.port*100+e.lives*10+tp)))}
	r.seen = &simCoverage{tally: s.tally, rank: r}
	agent, err := s.fabric.Agent(r.agent)
	if err != nil {
		panic(err)
	}
	fetch := func(ctx context.Context, host string, port, pp, tp int) ([]byte, error) {
		r.stand()
		return s.fetch(ctx, r.agent, host, port, pp, tp)
	}
	cfg := Config{EngineID: e.name, Host: "127.0.0.1", Port: e.port, TPRank: tp, TPSize: e.tp, CompatHash: "h", EnforceCompat: true,
		Lease: simLease, ReceiveTimeout: simReceive, HandshakeTimeout: simHandshake, PeerTTL: simPeerTTL, Writers: 1 + int(s.seed%2)}
	r.Engine, err = open(cfg, simTransport{agent, r}, fetch, slog.New(simLog{s, r.agent, r.seen}), r.waker)
	if err != nil {
		panic(err)
	}
	return r
}

// kill ends an engine as a crash of all its processes does. Nobody hears of its requests.
func (e *simEngine) kill() {
	e.s.tell(e.name, "KILLED")
	e.s.tally.fault("engine killed")
	e.state.Store(simDown)
	for _, r := range e.ranks {
		e.s.fabric.Kill(r.agent)
	}
	e.clear()
	e.bury(e.ranks, nil)
}

// close shuts an engine down in an orderly way, while requests are under way.
func (e *simEngine) close() {
	e.s.tell(e.name, "closes")
	e.s.tally.fault("engine closed")
	e.state.Store(simClosing)
	for _, r := range e.ranks {
		r.post(func(*loop) { r.seen.closing() })
	}
	e.bury(e.ranks, func() { e.state.Store(simDown) })
}

// bury closes what is left of a life, and then calls done.
func (e *simEngine) bury(ranks []*simRank, done func()) {
	s := e.s
	s.funerals.Add(1)
	go func() {
		defer s.funerals.Done()
		for _, r := range ranks {
			if err := r.Close(); err != nil {
				s.violated("S5", "close of %s: %v", r.agent, err)
			}
		}
		if done != nil {
			done()
		}
	}()
}

// clear forgets the requests of a life that is over.
func (e *simEngine) clear() {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	for _, leg := range e.legs {
		leg.over = true
	}
	e.legs, e.backlog = map[uint64]*simLeg{}, nil
	e.pool.owner = [simBlocks]*simLeg{}
	e.s.note(e.name, "is down")
}

// stop lets the processes of an engine stand still for a while.
func (e *simEngine) stop(d time.Duration) {
	e.s.tell(e.name, "STOPPED for %v", d)
	e.s.tally.fault("engine stopped")
	e.stopped.Store(time.Now().Add(d).UnixNano())
	e.delay(d)
}

// delay moves the bounds of what an engine has under way.
func (e *simEngine) delay(d time.Duration) {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	for _, leg := range e.legs {
		leg.lost += d
	}
}

func newSimFabric(s *sim) *nixltest.Fabric {
	return nixltest.NewFabric(nixltest.Faults{Message: s.message, Transfer: s.transfer, Landing: s.landing})
}
