package conformance

import (
	"slices"

	"github.com/nixlpush/nixlpush/nixl"
)

func writeOne(c *testCase) {
	for _, size := range []int{1, 4096, 1<<20 + 3} {
		const guard = 512
		remote := c.remote(size+2*guard, 1)
		source, local := c.local(size, 2)
		want := make([]byte, size+2*guard)
		pattern(want, 1)
		copy(want[guard:], source)

		name := c.meet()
		c.transfer(c.Initiator.Create(nixl.Write, nixl.DRAM, []nixl.Desc{local},
			nixl.DRAM, []nixl.Desc{part(remote, guard, size)}, name, nil))
		c.holds(remote, want)
		c.must(c.Initiator.Unload(name))
	}
}

func writeMany(c *testCase) {
	const n, size = 1024, 4096
	remote := c.remote(n*size, 1)
	source, local := c.local(n*size, 2)
	want := make([]byte, n*size)
	pattern(want, 1)

	// Every second block, back to front, so that nothing is adjacent.
	var from, to []nixl.Desc
	for i := 0; i < n; i += 2 {
		j := n - 1 - i
		from = append(from, part(local, i*size, size))
		to = append(to, part(remote, j*size, size))
		copy(want[j*size:][:size], source[i*size:])
	}
	c.transfer(c.Initiator.Create(nixl.Write, nixl.DRAM, from, nixl.DRAM, to, c.meet(), nil))
	c.holds(remote, want)
}

func read(c *testCase) {
	const size = 300_000
	remote := c.remote(size, 1)
	sink, local := c.local(size, 2)
	want := slices.Clone(sink)
	there := make([]byte, size)
	pattern(there, 1)
	copy(want[1000:], there[5000:250_000])

	c.transfer(c.Initiator.Create(nixl.Read, nixl.DRAM, []nixl.Desc{part(local, 1000, 245_000)},
		nixl.DRAM, []nixl.Desc{part(remote, 5000, 245_000)}, c.meet(), nil))
	if !slices.Equal(sink, want) {
		c.Error("the bytes read are not those of the target")
	}
	c.holds(remote, there)
}

// blocks divides a range.
func blocks(d nixl.Desc, size int) []nixl.Desc {
	var all []nixl.Desc
	for at := 0; at < int(d.Len); at += size {
		all = append(all, part(d, at, size))
	}
	return all
}

func makeFromLists(c *testCase) {
	const n, size = 64, 1000
	remote := c.remote(n*size, 1)
	source, local := c.local(n*size, 2)
	name := c.meet()
	from, err := c.Initiator.Prepare("", nixl.DRAM, blocks(local, size))
	c.must(err)
	to, err := c.Initiator.Prepare(name, nixl.DRAM, blocks(remote, size))
	c.must(err)
	defer func() { c.must(from.Release()); c.must(to.Release()) }()

	want := make([]byte, n*size)
	pattern(want, 1)
	localIdx := []int32{5, 3, 63, 0, 1, 2, 9}
	remoteIdx := []int32{0, 63, 3, 10, 11, 12, 13}
	for i := range localIdx {
		copy(want[remoteIdx[i]*size:][:size], source[localIdx[i]*size:])
	}
	r, err := c.Initiator.Make(nixl.Write, from, localIdx, to, remoteIdx, []byte("made"))
	c.transfer(r, err)
	c.holds(remote, want)
	if got := c.arrivals(1); string(got[0].Payload) != "made" {
		c.Errorf("notified %q", got[0].Payload)
	}

	c.refuses(from, []int32{64}, to, []int32{0})
	c.refuses(from, []int32{-1}, to, []int32{0})
	c.refuses(from, []int32{0}, to, []int32{0, 1})
	c.refuses(from, nil, to, nil)
	c.refuses(to, []int32{0}, from, []int32{0})
}

func (c *testCase) refuses(local nixl.List, localIdx []int32, remote nixl.List, remoteIdx []int32) {
	c.Helper()
	_, err := c.Initiator.Make(nixl.Write, local, localIdx, remote, remoteIdx, nil)
	c.is(err, nixl.ErrInvalid)
}

func postAgain(c *testCase) {
	const size = 5000
	remote := c.remote(size, 1)
	source, local := c.local(size, 2)
	r, err := c.Initiator.Create(nixl.Write, nixl.DRAM, []nixl.Desc{local}, nixl.DRAM, []nixl.Desc{remote}, c.meet(), []byte("again"))
	c.must(err)
	_, err = r.Status()
	c.is(err, nixl.ErrInvalid)
	for seed := range byte(3) {
		pattern(source, seed)
		_, err := r.Post()
		c.must(err)
		c.until("transfer", func() bool { s, err := r.Status(); c.must(err); return s == nixl.Done })
		c.holds(remote, source)
	}
	c.arrivals(3)
	c.must(r.Release())
	c.is(r.Release(), nixl.ErrInvalid)
	_, err = r.Post()
	c.is(err, nixl.ErrInvalid)
}

func telemetry(c *testCase) {
	const n, size = 32, 2048
	remote, name := c.remote(2*n*size, 1), ""
	_, local := c.local(n*size, 2)
	name = c.meet()
	var to []nixl.Desc
	for i := range n {
		to = append(to, part(remote, 2*i*size, size))
	}
	r, err := c.Initiator.Create(nixl.Write, nixl.DRAM, blocks(local, size), nixl.DRAM, to, name, nil)
	c.must(err)
	_, err = r.Telemetry()
	c.is(err, nixl.ErrInvalid)
	_, err = r.Post()
	c.must(err)
	c.until("transfer", func() bool { s, err := r.Status(); c.must(err); return s == nixl.Done })
	got, err := r.Telemetry()
	c.must(err)
	if got.Bytes != n*size || got.Descriptors != n || got.Post < 0 || got.Transfer < got.Post {
		c.Errorf("telemetry of %d bytes in %d descriptors: %+v", n*size, n, got)
	}
	c.must(r.Release())
}
