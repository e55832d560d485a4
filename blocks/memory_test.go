package blocks

import (
	"bytes"
	"hash/maphash"
	"testing"
)

// memory is a part of an address space.
type memory struct {
	base  uint64
	bytes []byte
}

func newMemory(base uint64, size int) *memory { return &memory{base, make([]byte, size)} }

// at panics if the range is not within the memory.
func (m *memory) at(address, n uint64) []byte { return m.bytes[address-m.base:][:n:n] }

func (m *memory) clear() { clear(m.bytes) }

func execute(copies []Copy, src, dst *memory) {
	for _, c := range copies {
		copy(dst.at(c.Dst, c.Len), src.at(c.Src, c.Len))
	}
}

// content is what a row of an element of the model holds: never 0, which is what memory holds at first.
func content(into []byte, component string, c coordinates) {
	type place struct {
		component string
		coordinates
		b int
	}
	for b := range into {
		into[b] = byte(maphash.Comparable(contentSeed, place{component, c, b})%255) + 1
	}
}

var contentSeed = maphash.MakeSeed()

// TestCopiedCacheIsRead writes the caches of random worlds by coordinates, runs the plan and
// reads the other cache by coordinates. All other bytes must be as they were.
func TestCopiedCacheIsRead(t *testing.T) {
	src, dst, want := newMemory(1<<24, 3<<20), newMemory(1<<30, 3<<20), newMemory(1<<30, 3<<20)
	var p Planner
	compared := 0
	for seed := range uint64(1500) {
		w := newWorld(seed + 1e6)
		for _, m := range []*memory{src, dst, want} {
			m.clear()
		}
		clash := false // the same bytes for two purposes, because an id is named twice
		write := func(m *memory, address uint64, p *Part, c coordinates) {
			element := make([]byte, p.Size)
			content(element, p.Component, c)
			at := m.at(address, p.Size)
			for i, old := range at {
				clash = clash || old != 0 && old != element[i]
			}
			copy(at, element)
		}
		w.each(func(s, d uint64, p *Part, c coordinates) {
			write(src, s, p, c)
			write(want, d, p, c)
		})
		if clash {
			continue
		}
		m, err := NewMapping(w.src, w.dst)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := p.Plan(m, w.srcIDs, w.dstIDs, w.tokens)
		if err != nil {
			t.Fatal(err)
		}
		execute(plan.Append(nil), src, dst)
		if !bytes.Equal(dst.bytes, want.bytes) {
			t.Fatalf("seed %d: the destination is not what its description says\n%+v", seed, w)
		}
		compared++
	}
	if compared < 1000 {
		t.Errorf("only %d worlds were compared", compared)
	}
}
