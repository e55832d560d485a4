package nixltest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nixlpush/nixlpush/nixl"
)

func examples() []peer {
	return []peer{
		{name: "a", incarnation: 1},
		{name: "agent", incarnation: 1 << 60, ranges: []memory{
			{nixl.DRAM, nixl.Desc{Addr: 4096, Len: 1}},
			{nixl.VRAM, nixl.Desc{Addr: 1 << 63, Len: 1 << 62, Dev: 7}},
		}},
	}
}

func TestMetadataRoundTrip(t *testing.T) {
	for _, p := range examples() {
		decoded, err := decodeMetadata(encodeMetadata(p))
		require.NoError(t, err)
		require.Equal(t, p, *decoded)
	}
}

func TestMetadataCutShort(t *testing.T) {
	for _, p := range examples() {
		whole := encodeMetadata(p)
		for n := range whole {
			// Cut between two ranges, it is the metadata of less memory.
			if _, err := decodeMetadata(whole[:n]); err == nil && (len(whole)-n)%rangeSize != 0 {
				t.Errorf("%d of %d bytes were taken", n, len(whole))
			}
		}
	}
}

func FuzzDecodeMetadata(f *testing.F) {
	for _, p := range examples() {
		f.Add(encodeMetadata(p))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodeMetadata(b)
		if err != nil {
			return
		}
		again, err := decodeMetadata(encodeMetadata(*p))
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}

func TestCovers(t *testing.T) {
	const top = 1<<64 - 1
	r := memory{nixl.DRAM, nixl.Desc{Addr: 100, Len: 50, Dev: 1}}
	for _, c := range []struct {
		d    nixl.Desc
		want bool
	}{
		{nixl.Desc{Addr: 100, Len: 50, Dev: 1}, true},
		{nixl.Desc{Addr: 149, Len: 1, Dev: 1}, true},
		{nixl.Desc{Addr: 150, Len: 1, Dev: 1}, false},
		{nixl.Desc{Addr: 99, Len: 1, Dev: 1}, false},
		{nixl.Desc{Addr: 101, Len: 50, Dev: 1}, false},
		{nixl.Desc{Addr: 101, Len: top - 50, Dev: 1}, false},
		{nixl.Desc{Addr: top, Len: 2, Dev: 1}, false},
		{nixl.Desc{Addr: 100, Len: 50}, false},
	} {
		require.Equal(t, c.want, r.covers(nixl.DRAM, c.d), "%+v", c.d)
	}
	require.False(t, r.covers(nixl.VRAM, r.desc))
	low := memory{nixl.DRAM, nixl.Desc{Addr: 10, Len: 50}}
	require.False(t, low.covers(nixl.DRAM, nixl.Desc{Addr: top, Len: 50}), "the sum wraps")
}
