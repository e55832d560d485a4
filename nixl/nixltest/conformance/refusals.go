package conformance

import (
	"math"

	"github.com/nixlpush/nixlpush/nixl"
)

func unregisteredMemory(c *testCase) {
	const size = 4096
	remote := c.remote(size, 1)
	_, local := c.local(size, 2)
	_, stray := allocate(size, 3)
	name := c.meet()
	wrap := nixl.Desc{Addr: remote.Addr + 16, Len: math.MaxUint64 - 8}
	for _, d := range []nixl.Desc{
		{Addr: size, Len: size},
		part(remote, 1, size),
		part(remote, -1, size),
		{Addr: remote.Addr, Len: size + 1},
		wrap,
	} {
		c.refusesRemote(local, d, name)
	}
	_, err := c.Initiator.Create(nixl.Write, nixl.DRAM, []nixl.Desc{stray}, nixl.DRAM, []nixl.Desc{remote}, name, nil)
	c.is(err, nixl.ErrInvalid)
	_, err = c.Initiator.Prepare("", nixl.DRAM, []nixl.Desc{stray})
	c.is(err, nixl.ErrInvalid)
	c.refusesReleased(remote, name)
}

// refusesRemote tries a range of the target in every way.
func (c *testCase) refusesRemote(local, remote nixl.Desc, name string) {
	c.Helper()
	_, err := c.Initiator.Prepare(name, nixl.DRAM, []nixl.Desc{remote})
	c.is(err, nixl.ErrInvalid)
	from := nixl.Desc{Addr: local.Addr, Len: remote.Len}
	if remote.Len > local.Len {
		from = local // refused for the lengths, at the latest
	}
	_, err = c.Initiator.Create(nixl.Write, nixl.DRAM, []nixl.Desc{from}, nixl.DRAM, []nixl.Desc{remote}, name, nil)
	c.is(err, nixl.ErrInvalid)
}

// refusesReleased registers memory, releases it, and wants it refused.
func (c *testCase) refusesReleased(remote nixl.Desc, name string) {
	c.Helper()
	_, d := allocate(int(remote.Len), 4)
	registration, err := c.Initiator.Register(nixl.DRAM, []nixl.Desc{d})
	c.must(err)
	c.must(registration.Release())
	c.is(registration.Release(), nixl.ErrInvalid)
	_, err = c.Initiator.Create(nixl.Write, nixl.DRAM, []nixl.Desc{d}, nixl.DRAM, []nixl.Desc{remote}, name, nil)
	c.is(err, nixl.ErrInvalid)
}

func malformedArguments(c *testCase) {
	remote := c.remote(4096, 1)
	_, local := c.local(4096, 2)
	name := c.meet()
	create := func(local, remote []nixl.Desc) error {
		_, err := c.Initiator.Create(nixl.Write, nixl.DRAM, local, nixl.DRAM, remote, name, nil)
		return err
	}
	c.is(create(nil, nil), nixl.ErrInvalid)
	c.is(create([]nixl.Desc{local}, nil), nixl.ErrInvalid)
	c.is(create([]nixl.Desc{part(local, 0, 10)}, []nixl.Desc{part(remote, 0, 11)}), nixl.ErrInvalid)
	_, err := c.Initiator.Prepare(name, nixl.DRAM, nil)
	c.is(err, nixl.ErrInvalid)
	_, err = c.Initiator.Register(nixl.DRAM, nil)
	c.is(err, nixl.ErrInvalid)
}

func unknownAgent(c *testCase) {
	_, local := c.local(4096, 2)
	const nobody = "nobody"
	_, err := c.Initiator.Create(nixl.Write, nixl.DRAM, []nixl.Desc{local}, nixl.DRAM, []nixl.Desc{local}, nobody, nil)
	c.is(err, nixl.ErrNotFound)
	_, err = c.Initiator.Prepare(nobody, nixl.DRAM, []nixl.Desc{local})
	c.is(err, nixl.ErrNotFound)
	c.is(c.Initiator.Notify(nobody, []byte("x")), nixl.ErrNotFound)
	c.is(c.Initiator.Connect(nobody), nixl.ErrNotFound)
	c.is(c.Initiator.Unload(nobody), nixl.ErrNotFound)
}

func metadata(c *testCase) {
	_, local := c.local(4096, 2)
	before, err := c.Target.Metadata()
	c.must(err)
	remote := c.remote(4096, 1)
	write := func(name string) (nixl.Request, error) {
		return c.Initiator.Create(nixl.Write, nixl.DRAM, []nixl.Desc{local}, nixl.DRAM, []nixl.Desc{remote}, name, nil)
	}

	name, err := c.Initiator.Load(before)
	c.must(err)
	_, err = write(name)
	c.is(err, nixl.ErrInvalid, nixl.ErrBackend)
	c.must(c.Initiator.Unload(name))

	name = c.meet()
	c.transfer(write(name))
	c.must(c.Initiator.Connect(name))

	for _, garbage := range [][]byte{nil, []byte("x"), make([]byte, 1000), before[:len(before)/2]} {
		if name, err := c.Initiator.Load(garbage); err == nil {
			c.Errorf("loaded %d bytes of garbage as %q", len(garbage), name)
		}
	}
}
