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

// spoil changes a field or two of a cache.
func (r *reader) spoil(c Cache) {
	for range r.byte() % 3 {
		region := &c[r.byte()%uint64(len(c))]
		p := &region.Parts[r.byte()%uint64(len(region.Parts))]
		long := []*uint64{&region.Base, &region.Stride, &p.Offset, &p.Size, &p.RowStride, &p.TokenStride, &p.Layers.Stride, &p.Heads.Stride}
		short := []*uint32{&region.NumBlocks, &region.PerID, &region.Tokens, &region.Window, &p.Layers.First, &p.Layers.N,
			&p.Heads.First, &p.Heads.N, &p.HeadsOf, &p.Rows}
		switch i := r.byte() % uint64(len(long)+len(short)+1); {
		case i < uint64(len(long)):
			*long[i] = r.number()
		case i < uint64(len(long)+len(short)):
			*short[i-uint64(len(long))] = uint32(r.number())
		default:
			region.Group = int(r.byte()%4) - 1
		}
	}
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

// FuzzPlan spoils descriptions, block ids and the number of tokens of a world. There may be
// no panic, never an address outside of both caches, and no copy that could be joined.
func FuzzPlan(f *testing.F) {
	f.Add(uint64(1), uint64(9), []byte{0, 0, 0})
	f.Add(uint64(2), uint64(9), []byte{0, 0, 1, 2, 3, 4, 0, 5, 6})
	f.Add(uint64(3), uint64(20), []byte{1, 0, 0, 8, 3, 1, 0, 0, 6, 2, 0})
	f.Fuzz(func(t *testing.T, seed, tokens uint64, data []byte) {
		w := newWorld(seed)
		r := reader(data)
		r.spoil(w.src)
		r.spoil(w.dst)
		m, err := NewMapping(w.src, w.dst)
		if err != nil || w.work(m) > 1<<18 { // what is beyond takes too long
			return
		}
		for _, lists := range [][][]uint32{w.srcIDs, w.dstIDs} {
			for g := range lists {
				for i := range lists[g] {
					if n := r.number(); n > 0 {
						lists[g][i] = uint32(n)
					}
				}
			}
		}
		var p Planner
		plan, err := p.Plan(m, w.srcIDs, w.dstIDs, tokens)
		if err != nil {
			return
		}
		for _, c := range plan.Append(nil) {
			if !within(w.src, c.Src, c.Len) || !within(w.dst, c.Dst, c.Len) {
				t.Fatalf("%+v leaves\n%v\nor\n%v", c, w.src, w.dst)
			}
		}
		checkMinimal(t, seed, plan.Append(nil))
	})
}

// work is how many copies a block id may become.
func (w *world) work(m *Mapping) float64 {
	units, pieces := 1.0, 0.0
	for _, region := range slices.Concat(w.src, w.dst) {
		units = max(units, float64(region.PerID)*float64(max(region.Tokens, 1)))
	}
	for i := range m.shapes {
		pieces += float64(len(m.shapes[i].chunks.copies)) * float64(m.shapes[i].places)
	}
	return units * pieces
}
