package blocks

import (
	"encoding/binary"
	"slices"
	"testing"
)

// reader draws numbers from the bytes of a fuzzer; when they are used up, zeros.
type reader []byte

func (r *reader) byte() uint64 {
	if len(*r) == 0 {
		return 0
	}
	b := (*r)[0]
	*r = (*r)[1:]
	return uint64(b)
}

// number is small as a rule, and now and then anything.
func (r *reader) number() uint64 {
	n := r.byte()
	if n < 250 || len(*r) < 8 {
		return n % 25
	}
	n = binary.LittleEndian.Uint64(*r) >> (8 * (n - 250))
	*r = (*r)[8:]
	return n
}

func (r *reader) axis() Axis {
	return Axis{First: uint32(r.number()), N: uint32(r.number()), Stride: r.number()}
}

func (r *reader) cache(base uint64) Cache {
	var c Cache
	for range 1 + r.byte()%3 {
		region := Region{Base: base + r.number(), Stride: r.number() * 8, NumBlocks: uint32(r.number()), PerID: uint32(r.number()),
			Group: int(r.byte()%4) - 1, Tokens: uint32(r.number()), Window: uint32(r.byte() % 3 * 5)}
		for range 1 + r.byte()%2 {
			region.Parts = append(region.Parts, Part{Component: "kv"[r.byte()%2:][:1], Offset: r.number(), Size: r.number(),
				Layers: r.axis(), Heads: r.axis(), HeadsOf: uint32(r.number()), TokenStride: r.number()})
		}
		c = append(c, region)
	}
	return c
}

func (r *reader) ids() [][]uint32 {
	lists := make([][]uint32, r.byte()%5)
	for i := range lists {
		for range r.byte() % 9 {
			lists[i] = append(lists[i], uint32(r.number()))
		}
	}
	return lists
}

// within reports whether a range lies within the regions, in several of them if they adjoin.
func within(c Cache, address, n uint64) bool {
	for end := address + n; address < end; {
		next := address
		for i := range c {
			for k := range c[i].Parts {
				if last, _ := c[i].end(&c[i].Parts[k]); address >= c[i].Base {
					next = max(next, last)
				}
			}
		}
		if next == address {
			return false
		}
		address = next
	}
	return true
}

// FuzzPlan plans with anything: no panic, and never an address outside of both caches.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 24, 4, 1, 1, 4, 0, 1, 1, 0, 2, 0, 1, 2, 0, 2, 8, 2, 2, 0, 0, 24, 4, 1, 1, 4, 0, 1, 1, 0, 2, 0, 1, 2, 0, 2, 8, 2, 2, 0, 1, 3, 1, 2, 3, 1, 3, 3, 2, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := reader(data)
		src, dst := r.cache(1<<20), r.cache(1<<40)
		m, err := NewMapping(src, dst)
		if err != nil {
			return
		}
		work := float64(0)
		for _, region := range slices.Concat(src, dst) {
			work += float64(region.PerID) * float64(max(region.Tokens, 1))
		}
		pieces := 0
		for i := range m.shapes {
			pieces += len(m.shapes[i].chunks.copies) * int(m.shapes[i].places)
		}
		if work*float64(pieces) > 1<<16 {
			return // takes too long
		}
		var p Planner
		plan, err := p.Plan(m, r.ids(), r.ids(), r.number())
		if err != nil {
			return
		}
		for _, c := range plan.Copies {
			if !within(src, c.Src, c.Len) || !within(dst, c.Dst, c.Len) {
				t.Fatalf("%+v leaves\n%v\nor\n%v", c, src, dst)
			}
		}
		if len(plan.Copies) < 1<<12 {
			checkMinimal(t, 0, plan.Copies)
		}
	})
}

// FuzzPlanOfWorlds lets the fuzzer choose among worlds whose caches fit each other and spoil
// the lists.
func FuzzPlanOfWorlds(f *testing.F) {
	f.Add(uint64(1), uint64(9), []byte{1, 2, 3, 4, 0, 5, 6})
	f.Fuzz(func(t *testing.T, seed, tokens uint64, data []byte) {
		w := newWorld(seed)
		m, err := NewMapping(w.src, w.dst)
		if err != nil {
			t.Fatal(err)
		}
		r := reader(data)
		for _, lists := range [][][]uint32{w.srcIDs, w.dstIDs} {
			for g := range lists {
				for i := range lists[g] {
					if len(r) > 0 {
						lists[g][i] = uint32(r.number())
					}
				}
			}
		}
		var p Planner
		plan, err := p.Plan(m, w.srcIDs, w.dstIDs, tokens)
		if err != nil {
			return
		}
		for _, c := range plan.Copies {
			if !within(w.src, c.Src, c.Len) || !within(w.dst, c.Dst, c.Len) {
				t.Fatalf("%+v leaves\n%v\nor\n%v", c, w.src, w.dst)
			}
		}
		checkMinimal(t, seed, plan.Copies)
	})
}
