// Package conformance holds the cases that every nixl.Transport passes: the fabric of
// package nixltest within one process, and NIXL itself between two.
package conformance

import (
	"errors"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
)

// Pair is what a case runs on: an initiator in this process and a target anywhere.
type Pair struct {
	Initiator nixl.Transport
	Target    Target
	// StartTarget makes another target under the same name, after Target.Kill.
	StartTarget func(t *testing.T) Target
	// Pending says that a large WRITE to a paused target stays in progress.
	Pending bool
}

// Run runs all cases. open makes a pair and has t clean up after it.
func Run(t *testing.T, open func(t *testing.T) Pair) {
	shared := open(t)
	for _, c := range sharedCases {
		t.Run(c.name, func(t *testing.T) { c.run(newCase(t, shared)) })
	}
	for _, c := range ownCases {
		t.Run(c.name, func(t *testing.T) { c.run(newCase(t, open(t))) })
	}
}

type namedCase struct {
	name string
	run  func(*testCase)
}

// sharedCases leave the pair as they found it.
var sharedCases = []namedCase{
	{"write one descriptor", writeOne},
	{"write many descriptors", writeMany},
	{"read", read},
	{"make from prepared lists", makeFromLists},
	{"post again", postAgain},
	{"notification after data", notificationAfterData},
	{"notify order", notifyOrder},
	{"unregistered memory", unregisteredMemory},
	{"malformed arguments", malformedArguments},
	{"unknown agent", unknownAgent},
	{"in progress", inProgress},
	{"telemetry", telemetry},
	{"reload", reload},
	{"many at once", manyAtOnce},
}

// ownCases need a pair of their own, mostly since they end it.
var ownCases = []namedCase{
	// UCX loses long messages to an agent that has reloaded the sender alone.
	{"notify payloads", notifyPayloads},
	// A refused blob can leave NIXL unable to load the good one of the same agent.
	{"metadata", metadata},
	{"close", closeTransport},
	{"killed peer", killedPeer},
}

// testCase is one run of a case, with the initiator knowing the target.
type testCase struct {
	*testing.T
	Pair
}

func newCase(t *testing.T, p Pair) *testCase { return &testCase{t, p} }

// patience is how long anything may take that is expected to happen.
const patience = 20 * time.Second

// pollEvery is how often a case polls.
const pollEvery = 50 * time.Microsecond

// must ends the case if a step failed that is not what it tests.
func (c *testCase) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// is checks that a call failed with one of the sentinels.
func (c *testCase) is(err error, want ...error) {
	c.Helper()
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	c.Errorf("got error %v, want one of %v", err, want)
}

// until polls until the condition holds.
func (c *testCase) until(what string, condition func() bool) {
	c.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(pollEvery) {
		if time.Now().After(end) {
			c.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// meet makes target and initiator know each other with all that is registered now.
// It returns the target's name.
func (c *testCase) meet() string {
	c.Helper()
	blob, err := c.Target.Metadata()
	c.must(err)
	name, err := c.Initiator.Load(blob)
	c.must(err)
	c.Cleanup(func() { c.Initiator.Unload(name) })
	return name
}

// meetBack makes the target know the initiator, so that it can notify.
func (c *testCase) meetBack() {
	c.Helper()
	blob, err := c.Initiator.Metadata()
	c.must(err)
	name, err := c.Target.Load(blob)
	c.must(err)
	c.Cleanup(func() { c.Target.Unload(name) })
}

// remote is memory of the target that holds the pattern of the seed.
func (c *testCase) remote(size int, seed byte) nixl.Desc {
	c.Helper()
	d, err := c.Target.Allocate(size, seed)
	c.must(err)
	c.Cleanup(func() {
		if err := c.Target.Free(d); err != nil {
			c.Error(err)
		}
	})
	return d
}

// local is registered memory of the initiator that holds the pattern of the seed.
func (c *testCase) local(size int, seed byte) ([]byte, nixl.Desc) {
	c.Helper()
	b, d := allocate(size, seed)
	r, err := c.Initiator.Register(nixl.DRAM, []nixl.Desc{d})
	c.must(err)
	c.Cleanup(func() {
		if err := r.Release(); err != nil {
			c.Error(err)
		}
	})
	return b, d
}

// finish polls a posted request until it is done and releases it.
func (c *testCase) finish(r nixl.Request) {
	c.Helper()
	c.until("transfer", func() bool {
		status, err := r.Status()
		c.must(err)
		return status == nixl.Done
	})
	c.must(r.Release())
}

// transfer posts a request and waits for its end.
func (c *testCase) transfer(r nixl.Request, err error) {
	c.Helper()
	c.must(err)
	_, err = r.Post()
	c.must(err)
	c.finish(r)
}

// holds checks the bytes of a range of the target.
func (c *testCase) holds(d nixl.Desc, want []byte) {
	c.Helper()
	sum, err := c.Target.Sum(d)
	c.must(err)
	if sum != checksum(want) {
		c.Errorf("%d bytes at the target differ from what they should be", d.Len)
	}
}

// arrivals collects n notifications of the target. It polls the initiator, too, as
// what it sent may still be waiting in its backend.
func (c *testCase) arrivals(n int) []Arrival {
	c.Helper()
	var all []Arrival
	c.until("notifications", func() bool {
		_, err := c.Initiator.Notifications()
		c.must(err)
		some, err := c.Target.Arrivals()
		c.must(err)
		all = append(all, some...)
		return len(all) >= n
	})
	if len(all) > n {
		c.Errorf("%d notifications arrived, want %d", len(all), n)
	}
	return all
}

// part is a piece of a range.
func part(d nixl.Desc, offset, size int) nixl.Desc {
	return nixl.Desc{Addr: d.Addr + uint64(offset), Len: uint64(size), Dev: d.Dev}
}
