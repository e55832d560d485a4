package conformance

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/nixlpush/nixlpush/nixl"
)

func notificationAfterData(c *testCase) {
	const size = 1 << 20
	remote := c.remote(size, 1)
	source, local := c.local(size, 2)
	name := c.meet()
	c.must(c.Target.Watch(remote))
	for i := range 30 {
		pattern(source, byte(100+i))
		payload := fmt.Appendf(nil, "written %d", i)
		c.transfer(c.Initiator.Create(nixl.Write, nixl.DRAM, blocks(local, size/8), nixl.DRAM, blocks(remote, size/8), name, payload))
		a := c.arrivals(1)[0]
		if a.Agent != c.Initiator.Name() || !bytes.Equal(a.Payload, payload) {
			c.Fatalf("notified %q by %q, want %q by %q", a.Payload, a.Agent, payload, c.Initiator.Name())
		}
		if a.Sum != checksum(source) {
			c.Fatalf("round %d: the notification was there before the data", i)
		}
	}
}

func notifyPayloads(c *testCase) {
	name := c.meet()
	c.meetBack()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	large := make([]byte, 1<<20)
	pattern(large, 7)
	for _, payload := range [][]byte{nil, {0}, []byte("a"), []byte("a\x00b\x00"), all, large[:1<<16], large} {
		c.must(c.Initiator.Notify(name, payload))
		a := c.arrivals(1)[0]
		if a.Agent != c.Initiator.Name() || !bytes.Equal(a.Payload, payload) {
			c.Errorf("%d bytes arrived from %q as %d other ones", len(payload), a.Agent, len(a.Payload))
		}
		c.must(c.Target.Notify(c.Initiator.Name(), payload))
		back := c.drain(1)[0]
		if back.Agent != name || !bytes.Equal(back.Payload, payload) {
			c.Errorf("%d bytes came back from %q as %d other ones", len(payload), back.Agent, len(back.Payload))
		}
	}
}

// drain collects n notifications of the initiator.
func (c *testCase) drain(n int) []nixl.Notification {
	c.Helper()
	var all []nixl.Notification
	c.until("notifications", func() bool {
		some, err := c.Initiator.Notifications()
		c.must(err)
		all = append(all, some...)
		return len(all) >= n
	})
	return all
}

func notifyOrder(c *testCase) {
	const n = 500
	name := c.meet()
	for i := range n {
		// Sizes differ, so that they take different ways through the backend.
		c.must(c.Initiator.Notify(name, append(fmt.Appendf(nil, "%d ", i), make([]byte, i*37%9000)...)))
	}
	for i, a := range c.arrivals(n) {
		if number, _, _ := bytes.Cut(a.Payload, []byte(" ")); string(number) != fmt.Sprint(i) {
			c.Fatalf("notification %s arrived as number %d", number, i)
		}
	}
}

func reload(c *testCase) {
	remote := c.remote(4096, 1)
	source, local := c.local(4096, 2)
	blob, err := c.Target.Metadata()
	c.must(err)
	name := c.meet()
	write := func() (nixl.Request, error) {
		return c.Initiator.Create(nixl.Write, nixl.DRAM, []nixl.Desc{local}, nixl.DRAM, []nixl.Desc{remote}, name, []byte("w"))
	}
	stale, err := write()
	c.must(err)
	own, err := c.Initiator.Prepare("", nixl.DRAM, []nixl.Desc{local})
	c.must(err)
	prepared, err := c.Initiator.Prepare(name, nixl.DRAM, []nixl.Desc{remote})
	c.must(err)

	c.must(c.Initiator.Unload(name))
	_, err = write()
	c.is(err, nixl.ErrNotFound)
	c.is(c.Initiator.Notify(name, []byte("x")), nixl.ErrNotFound)
	_, err = c.Initiator.Make(nixl.Write, own, []int32{0}, prepared, []int32{0}, nil)
	c.is(err, nixl.ErrNotFound)

	again, err := c.Initiator.Load(blob)
	c.must(err)
	if again != name {
		c.Errorf("loaded %q, then %q", name, again)
	}
	_, err = stale.Post()
	c.is(err, nixl.ErrNotFound)
	c.must(stale.Release())
	c.must(own.Release())
	c.must(prepared.Release())
	c.transfer(write())
	c.holds(remote, slices.Clone(source))
	c.arrivals(1)
}
