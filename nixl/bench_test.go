package nixl_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
)

// descSize is the size of each descriptor below.
const descSize = 512

// benchPair is an initiator that knows a target, and n scattered descriptors of each.
func benchPair(b *testing.B, n int) (a nixl.Transport, name string, local, remote []nixl.Desc) {
	b.Helper()
	b.Setenv("UCX_TLS", "tcp,shm,self")
	a = openOrSkip(b, nixl.Config{})
	target := startTarget(b, "target")
	theirs, err := target.Allocate(2*n*descSize, 1)
	require.NoError(b, err)
	_, ours := nixltest.Buffer(2 * n * descSize)
	_, err = a.Register(nixl.DRAM, []nixl.Desc{ours})
	require.NoError(b, err)
	metadata, err := target.Metadata()
	require.NoError(b, err)
	name, err = a.Load(metadata)
	require.NoError(b, err)
	for i := range n {
		offset := uint64(2 * i * descSize)
		local = append(local, nixl.Desc{Addr: ours.Addr + offset, Len: descSize})
		remote = append(remote, nixl.Desc{Addr: theirs.Addr + offset, Len: descSize})
	}
	return a, name, local, remote
}

// BenchmarkCreate makes requests of lists that rise on both sides, and of one whose remote
// side is in any order, as it is if block ids are scattered.
func BenchmarkCreate(b *testing.B) {
	for _, c := range []struct {
		name     string
		n        int
		anyOrder bool
	}{{"1", 1, false}, {"1024", 1024, false}, {"65536", 65536, false}, {"65536-any-order", 65536, true}} {
		b.Run(c.name, func(b *testing.B) {
			n := c.n
			a, name, local, remote := benchPair(b, n)
			if c.anyOrder {
				rand.Shuffle(n, func(i, k int) { remote[i], remote[k] = remote[k], remote[i] })
			}
			b.ReportAllocs()
			for b.Loop() {
				r, err := a.Create(nixl.Write, nixl.DRAM, local, nixl.DRAM, remote, name, nil)
				if err == nil {
					err = r.Release()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/desc")
		})
	}
}

func BenchmarkMake(b *testing.B) {
	const n = 65536
	a, name, local, remote := benchPair(b, n)
	from, err := a.Prepare("", nixl.DRAM, local)
	require.NoError(b, err)
	to, err := a.Prepare(name, nixl.DRAM, remote)
	require.NoError(b, err)
	indices := make([]int32, n)
	for i := range indices {
		indices[i] = int32(i)
	}
	for b.Loop() {
		r, err := a.Make(nixl.Write, from, indices, to, indices, nil)
		if err == nil {
			err = r.Release()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/desc")
	require.NoError(b, from.Release())
	require.NoError(b, to.Release())
}

// BenchmarkWrite is Create, Post, the polls until it is done, and Release, of as many bytes
// in one descriptor, in one per layer of a model, and in one per block.
func BenchmarkWrite(b *testing.B) {
	const size, most = 64 << 20, 16384
	a, name, local, remote := benchPair(b, most*(size/most/descSize))
	for _, n := range []int{1, 64, most} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(size)
			from, to := split(local[0], n, size), split(remote[0], n, size)
			for b.Loop() {
				if err := write(a, from, to, name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLayers sends the 128 MiB of 1,024 adjoining blocks in 64 layers as one descriptor
// per layer and as one descriptor altogether, in turns. "of-one" is the part that the first
// reaches of the bandwidth of the second: medians.
func BenchmarkLayers(b *testing.B) {
	const layers, size = 64, 128 << 20
	a, name, local, remote := benchPair(b, size/descSize)
	kinds := [...]int{layers, 1}
	var took [len(kinds)][]time.Duration
	for b.Loop() {
		for i, n := range kinds {
			from, to := split(local[0], n, size), split(remote[0], n, size)
			start := time.Now()
			if err := write(a, from, to, name); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(start))
		}
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return d[len(d)/2].Seconds()
	}
	perLayer, one := median(took[0]), median(took[1])
	b.ReportMetric(one/perLayer, "of-one")
	b.ReportMetric(size/perLayer/1e6, "MB/s")
}

// split cuts size bytes into n descriptors with gaps between them.
func split(at nixl.Desc, n, size int) []nixl.Desc {
	list := make([]nixl.Desc, n)
	for i := range list {
		list[i] = nixl.Desc{Addr: at.Addr + uint64(i*2*(size/n)), Len: uint64(size / n)}
	}
	return list
}

func write(a nixl.Transport, local, remote []nixl.Desc, name string) error {
	r, err := a.Create(nixl.Write, nixl.DRAM, local, nixl.DRAM, remote, name, []byte("done"))
	if err != nil {
		return err
	}
	status, err := r.Post()
	for status == nixl.InProgress && err == nil {
		status, err = r.Status()
	}
	if err != nil {
		return err
	}
	return r.Release()
}

func BenchmarkNotificationsIdle(b *testing.B) {
	a, _, _, _ := benchPair(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Notifications(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStatus polls a transfer that does not move, as its target does not poll.
func BenchmarkStatus(b *testing.B) {
	b.Setenv("UCX_TLS", "tcp,self")
	a := openOrSkip(b, nixl.Config{})
	target := startTarget(b, "target")
	const size = 32 << 20
	theirs, err := target.Allocate(size, 1)
	require.NoError(b, err)
	_, ours := nixltest.Buffer(size)
	_, err = a.Register(nixl.DRAM, []nixl.Desc{ours})
	require.NoError(b, err)
	metadata, err := target.Metadata()
	require.NoError(b, err)
	name, err := a.Load(metadata)
	require.NoError(b, err)
	require.NoError(b, target.Poll(0))
	r, err := a.Create(nixl.Write, nixl.DRAM, []nixl.Desc{ours}, nixl.DRAM, []nixl.Desc{theirs}, name, nil)
	require.NoError(b, err)
	_, err = r.Post()
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if status, err := r.Status(); err != nil || status != nixl.InProgress {
			b.Fatal(status, err)
		}
	}
	require.NoError(b, target.Poll(50*time.Microsecond))
	for status := nixl.InProgress; status == nixl.InProgress; {
		status, err = r.Status()
		require.NoError(b, err)
	}
	require.NoError(b, r.Release())
}

// BenchmarkIdle is what an agent costs that nobody polls: a second of waiting.
func BenchmarkIdle(b *testing.B) {
	openOrSkip(b, nixl.Config{})
	for b.Loop() {
		b.ReportMetric(100*share(time.Second), "%core")
	}
}
