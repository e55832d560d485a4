package conformance

import (
	"fmt"
	"sync"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
)

func inProgress(c *testCase) {
	if !c.Pending {
		c.Skip("this transport ends every WRITE within Post")
	}
	const size = 64 << 20
	remote := c.remote(size, 1)
	source, local := c.local(size, 2)
	name := c.meet()
	c.must(c.Target.Poll(0))
	defer c.Target.Poll(pollEvery)
	r, err := c.Initiator.Create(nixl.Write, nixl.DRAM, []nixl.Desc{local}, nixl.DRAM, []nixl.Desc{remote}, name, []byte("late"))
	c.must(err)
	status, err := r.Post()
	c.must(err)
	if status != nixl.InProgress {
		c.Fatal("a large WRITE to a target that does not poll ended within Post")
	}
	c.is(r.Release(), nixl.ErrActive)
	_, err = r.Post()
	c.is(err, nixl.ErrActive)
	_, err = r.Telemetry()
	c.is(err, nixl.ErrInvalid)
	c.is(c.Initiator.Unload(name), nixl.ErrActive)
	c.is(c.Initiator.Close(), nixl.ErrActive)
	c.must(c.Target.Poll(pollEvery))
	c.finish(r)
	c.holds(remote, source)
	c.arrivals(1)
}

func manyAtOnce(c *testCase) {
	const threads, each, size = 8, 40, 64 << 10
	remote := c.remote(threads*size, 1)
	source, local := c.local(threads*size, 2)
	name := c.meet()
	stop := make(chan struct{})
	var polling, writing sync.WaitGroup
	polling.Go(func() { c.pollUntil(stop) })
	for thread := range threads {
		writing.Go(func() {
			from, to := part(local, thread*size, size), part(remote, thread*size, size)
			for i := range each {
				if err := c.writeOnce(from, to, name, fmt.Appendf(nil, "%d/%d", thread, i)); err != nil {
					c.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	close(stop)
	polling.Wait()
	if c.Failed() {
		return
	}
	c.holds(remote, source)
	seen := map[string]int{}
	for _, a := range c.arrivals(threads * each) {
		seen[string(a.Payload)]++
	}
	if len(seen) != threads*each {
		c.Errorf("%d different notifications for %d transfers", len(seen), threads*each)
	}
}

// pollUntil drains the initiator's notifications, of which there must be none.
func (c *testCase) pollUntil(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(pollEvery):
		}
		if got, err := c.Initiator.Notifications(); err != nil || len(got) > 0 {
			c.Errorf("polling: %d notifications, error %v", len(got), err)
			return
		}
	}
}

// writeOnce is a whole transfer that may run beside others.
func (c *testCase) writeOnce(from, to nixl.Desc, name string, notif []byte) error {
	r, err := c.Initiator.Create(nixl.Write, nixl.DRAM, []nixl.Desc{from}, nixl.DRAM, []nixl.Desc{to}, name, notif)
	if err != nil {
		return err
	}
	status, err := r.Post()
	for end := time.Now().Add(patience); err == nil && status == nixl.InProgress; status, err = r.Status() {
		if time.Now().After(end) {
			return fmt.Errorf("transfer %s: not within %v", notif, patience)
		}
		time.Sleep(pollEvery)
	}
	if err != nil {
		return err
	}
	return r.Release()
}

func closeTransport(c *testCase) {
	remote := c.remote(4096, 1)
	_, local := c.local(4096, 2)
	name := c.meet()
	r, err := c.Initiator.Create(nixl.Write, nixl.DRAM, []nixl.Desc{local}, nixl.DRAM, []nixl.Desc{remote}, name, nil)
	c.must(err)
	c.is(c.Initiator.Close(), nixl.ErrActive)
	c.transfer(r, nil)
	c.must(c.Initiator.Close())
	c.must(c.Initiator.Close())

	_, err = c.Initiator.Metadata()
	c.is(err, nixl.ErrClosed)
	_, err = c.Initiator.Notifications()
	c.is(err, nixl.ErrClosed)
	_, err = c.Initiator.Create(nixl.Write, nixl.DRAM, []nixl.Desc{local}, nixl.DRAM, []nixl.Desc{remote}, name, nil)
	c.is(err, nixl.ErrClosed)
	c.is(c.Initiator.Notify(name, nil), nixl.ErrClosed)
	c.is(c.Initiator.Unload(name), nixl.ErrClosed)
	_, err = r.Status()
	c.is(err, nixl.ErrClosed)
}

func killedPeer(c *testCase) {
	remote, err := c.Target.Allocate(1<<20, 1)
	c.must(err)
	source, local := c.local(1<<20, 2)
	name := c.meet()
	write := func(to nixl.Desc) (nixl.Request, error) {
		return c.Initiator.Create(nixl.Write, nixl.DRAM, []nixl.Desc{local}, nixl.DRAM, []nixl.Desc{to}, name, []byte("w"))
	}
	c.transfer(write(remote))
	c.must(c.Target.Kill())
	c.toTheDead(name, func() (nixl.Request, error) { return write(remote) })

	// A new agent of the same name can take the dead one's place.
	c.Initiator.Unload(name)
	c.Target = c.StartTarget(c.T)
	remote = c.remote(1<<20, 3)
	if again := c.meet(); again != name {
		c.Fatalf("the new target is called %q, the old one %q", again, name)
	}
	c.transfer(write(remote))
	c.holds(remote, source)
	c.arrivals(1)
}

// toTheDead writes and notifies until the transport says that the peer is gone, or
// for some seconds: both are allowed, a crash is not, and nor is a hang.
func (c *testCase) toTheDead(name string, write func() (nixl.Request, error)) {
	r, err := write()
	if err != nil {
		return
	}
	_, err = r.Post()
	for end := time.Now().Add(5 * time.Second); err == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
		c.Initiator.Notify(name, []byte("anyone there?"))
		_, err = c.Initiator.Notifications()
		c.must(err)
		_, err = r.Status()
	}
	if err != nil {
		c.is(err, nixl.ErrBackend, nixl.ErrNotFound)
		c.must(r.Release())
	}
}
