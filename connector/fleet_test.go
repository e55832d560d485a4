package connector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
)

// fleet is two engines of several ranks each, on one fabric in a bubble of virtual time.
type fleet struct {
	*world
	agent  func(name string) (nixl.Transport, waker)
	model  testModel
	from   side
	to     side
	p, d   []*member
	random *rand.Rand
	tag    uint64
}

// member is one rank.
type member struct {
	*testEngine
	*shard
	name string // of its agent
}

func inFleet(t *testing.T, m testModel, from, to side, faults nixltest.Faults, f func(f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fabric := nixltest.NewFabric(faults)
		f(newFleet(t, m, from, to, fabric, func(name string) (nixl.Transport, waker) {
			tr, err := fabric.Agent(name)
			if err != nil {
				t.Fatal(err)
			}
			return tr, newChanWaker()
		}))
	})
}

func newFleet(t *testing.T, m testModel, from, to side, fabric *nixltest.Fabric, agent func(string) (nixl.Transport, waker)) *fleet {
	t.Helper()
	f := &fleet{world: &world{T: t, fabric: fabric, site: site{}}, agent: agent, model: m, random: rand.New(rand.NewPCG(1, 2))}
	f.from, f.to = from.complete(pPort), to.complete(dPort)
	f.p, f.d = f.engines("P", f.from), f.engines("D", f.to)
	return f
}

func (s side) complete(port int) side {
	s.tp = max(1, s.tp)
	if s.layout == "" {
		s.layout = "LBHNC"
	}
	if s.port == 0 {
		s.port = port
	}
	return s
}

// engines starts every rank of an engine.
func (f *fleet) engines(name string, s side) (list []*member) {
	f.Helper()
	for pp := range s.pp() {
		for tp := range s.tp {
			list = append(list, f.member(fmt.Sprintf("%s%d.%d", name, pp, tp), s, pp, tp))
		}
	}
	return list
}

func (f *fleet) member(name string, s side, pp, tp int) *member {
	f.Helper()
	tr, w := f.agent(name)
	shard := f.model.shard(s, pp, tp)
	e := openTestEngine(f, f.site, s.port, tr, w, func(c *Config) {
		c.Lease, c.ReceiveTimeout, c.HandshakeTimeout = 3*time.Second, 10*time.Second, time.Second
		c.TPRank, c.TPSize, c.PPRank, c.PPSize = tp, s.tp, pp, s.pp()
	}, shard.layout)
	return &member{&testEngine{e, nil}, shard, name}
}

// request is one prompt, with the blocks it has on both sides.
type request struct {
	tag       uint64
	id        string
	tokens    int
	seed      byte
	have      BlockIDs // of P
	want      BlockIDs // of D
	haveFirst []int    // token that a group's list begins with
	wantFirst []int
	needed    []int // first token that is needed; earlier ones may lack
	lease     time.Duration
}

// request draws blocks for so many tokens. cached says how many D's blocks of each group
// hold already.
func (f *fleet) request(tokens int, cached ...int) *request {
	f.tag++
	r := &request{tag: f.tag, id: fmt.Sprint("r", f.tag), tokens: tokens, seed: byte(37 * f.tag)}
	for g := range max(1, f.model.groups) {
		first := func(s side) int {
			if f.model.window == 0 || g < f.model.groups-1 || tokens < f.model.window {
				return 0
			}
			return (tokens - f.model.window) / s.blockTokens() * s.blockTokens()
		}
		have, want := first(f.from), first(f.to)
		if g < len(cached) {
			want = max(want, cached[g]*f.to.blockTokens())
		}
		r.haveFirst, r.wantFirst, r.needed = append(r.haveFirst, have), append(r.wantFirst, want), append(r.needed, max(have, want))
		r.have, r.want = append(r.have, f.ids(have, tokens, f.from)), append(r.want, f.ids(want, tokens, f.to))
	}
	for _, p := range f.p {
		for g := range r.have {
			p.paint(g, r.have[g], r.haveFirst[g], tokens, r.seed)
		}
	}
	return r
}

func (f *fleet) ids(first, tokens int, s side) []uint32 {
	ids := []uint32{}
	n := max(0, (tokens-first+s.blockTokens()-1)/s.blockTokens())
	for _, id := range f.random.Perm(shardBlocks)[:n] {
		ids = append(ids, uint32(id))
	}
	return ids
}

func (f *fleet) endpoint() Endpoint {
	return Endpoint{EngineID: fmt.Sprint("engine-", f.from.port), Host: "127.0.0.1", Port: f.from.port, TPSize: f.from.tp, PPSize: f.from.pp()}
}

// expect and offer are what the scheduler of an engine tells one of its ranks.
func (f *fleet) expect(d *member, r *request) {
	f.Helper()
	d.submit(f, Step{Expects: []Expect{{Tag: r.tag, RequestID: "cmpl-" + r.id + "-0-0123abcd", Producer: f.endpoint(), Blocks: r.want}}})
}

func (f *fleet) offer(p *member, r *request) {
	f.Helper()
	p.submit(f, Step{Offers: []Offer{{Tag: r.tag, RequestID: "cmpl-" + r.id + "-0-deadbeef", Blocks: r.have, Tokens: uint64(r.tokens), Lease: r.lease}}})
}

func (f *fleet) expectAll(r *request) {
	f.Helper()
	for _, d := range f.d {
		f.expect(d, r)
	}
}

func (f *fleet) offerAll(r *request) {
	f.Helper()
	for _, p := range f.p {
		f.offer(p, r)
	}
}

// arrives waits for the request on all ranks, and checks every byte.
func (f *fleet) arrives(r *request) (sent Event) {
	f.Helper()
	for _, d := range f.d {
		f.wants(d.testEngine, 2*time.Second, r.tag, Received, ReasonNone)
	}
	for _, p := range f.p {
		ev := f.wants(p.testEngine, 2*time.Second, r.tag, Sent, ReasonNone)
		sent.Bytes, sent.Descriptors, sent.BlockPairs = sent.Bytes+ev.Bytes, sent.Descriptors+ev.Descriptors, sent.BlockPairs+ev.BlockPairs
	}
	f.checkBytes(r)
	return sent
}

func (f *fleet) checkBytes(r *request) {
	f.Helper()
	for _, d := range f.d {
		for g := range r.want {
			if what := d.wrong(g, r.want[g], r.wantFirst[g], r.needed[g], r.tokens, r.seed); what != "" {
				f.Fatalf("%s has wrong bytes in %s", d.name, what)
			}
			if n := d.touched(g, r.want[g]); n > 0 {
				f.Fatalf("%s: %d other blocks of group %d have changed", d.name, n, g)
			}
		}
	}
}

// wipe clears D's caches.
func (f *fleet) wipe() {
	for _, d := range f.d {
		for i := range d.mem {
			d.mem[i] = 0xEE
		}
	}
}

// wantedBytes is how many bytes D's blocks of a request have, on all ranks.
func (f *fleet) wantedBytes(r *request) (sum uint64) {
	for _, d := range f.d {
		for _, region := range d.layout.Regions {
			sum += region.BlockLen * uint64(len(r.want[region.Group]))
		}
	}
	return sum
}

// empty checks that no rank holds anything.
func (f *fleet) empty() {
	f.Helper()
	var all []*testEngine
	for _, m := range slices.Concat(f.p, f.d) {
		all = append(all, m.testEngine)
	}
	f.world.empty(all...)
}
