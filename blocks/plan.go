package blocks

import (
	"fmt"
	"slices"
)

// Region is one strided array of blocks in memory, usually one attention layer.
type Region struct {
	Base      uint64 // address of block 0
	Len       uint64 // bytes of one block
	Stride    uint64 // bytes from one block to the next
	NumBlocks uint32
	Group     int // group whose block ids index it; AnyGroup: every group's
}

// AnyGroup marks a region that several groups share.
const AnyGroup = -1

// Side is one end of a transfer.
type Side struct {
	Regions []Region
	// PerLogical is how many consecutive blocks of a region one block id stands for.
	PerLogical uint32
}

// Copy is one piece of a plan: Len bytes from Src to Dst.
type Copy struct {
	Src, Dst, Len uint64
}

// Planner turns block ids into copies. Its buffers are reused from plan to plan, so a
// warm Planner does not allocate. It is not for concurrent use.
type Planner struct {
	pairs  []uint64
	runs   []run
	bounds []int // runs[bounds[g]:bounds[g+1]] belong to group g
	copies []Copy
}

// run is n logical blocks that are consecutive on both sides.
type run struct{ src, dst, n uint32 }

// Plan pairs srcIDs with dstIDs, group by group and in order, and returns what to copy in
// as few pieces as possible, ordered by region and then by source address. Both sides
// must have the same regions in the same order, equal in block length, and srcIDs and
// dstIDs equal shapes. It checks every id against the regions. pairs counts the pieces an
// unmerged plan would have. The copies are valid until the next Plan.
func (p *Planner) Plan(src, dst Side, srcIDs, dstIDs [][]uint32) (copies []Copy, pairs uint64, err error) {
	if err := checkSides(src, dst); err != nil {
		return nil, 0, err
	}
	if len(srcIDs) != len(dstIDs) {
		return nil, 0, fmt.Errorf("%d source and %d destination groups", len(srcIDs), len(dstIDs))
	}
	p.runs, p.bounds, p.copies = p.runs[:0], append(p.bounds[:0], 0), p.copies[:0]
	for g := range srcIDs {
		if len(srcIDs[g]) != len(dstIDs[g]) {
			return nil, 0, fmt.Errorf("group %d: %d source and %d destination blocks", g, len(srcIDs[g]), len(dstIDs[g]))
		}
		p.addRuns(srcIDs[g], dstIDs[g])
		p.bounds = append(p.bounds, len(p.runs))
	}
	for r := range src.Regions {
		first, last := src.Regions[r].Group, src.Regions[r].Group
		if first == AnyGroup {
			first, last = 0, len(srcIDs)-1
		}
		if last >= len(srcIDs) {
			return nil, 0, fmt.Errorf("region %d belongs to group %d, request has %d groups", r, last, len(srcIDs))
		}
		for g := first; g <= last; g++ {
			pairs += uint64(len(srcIDs[g])) * uint64(src.PerLogical)
			for _, run := range p.runs[p.bounds[g]:p.bounds[g+1]] {
				if err := p.expand(&src.Regions[r], &dst.Regions[r], run, src.PerLogical); err != nil {
					return nil, 0, fmt.Errorf("region %d: %w", r, err)
				}
			}
		}
	}
	return p.copies, pairs, nil
}

func checkSides(src, dst Side) error {
	if len(src.Regions) != len(dst.Regions) {
		return fmt.Errorf("%d source and %d destination regions", len(src.Regions), len(dst.Regions))
	}
	if src.PerLogical != dst.PerLogical || src.PerLogical == 0 {
		return fmt.Errorf("a block id stands for %d source and %d destination blocks", src.PerLogical, dst.PerLogical)
	}
	for r := range src.Regions {
		if src.Regions[r].Len != dst.Regions[r].Len || src.Regions[r].Group != dst.Regions[r].Group {
			return fmt.Errorf("region %d differs: source %+v, destination %+v", r, src.Regions[r], dst.Regions[r])
		}
	}
	return nil
}

// addRuns sorts the pairs by source id and joins neighbours. Sorting is what recovers
// descending runs, which vLLM's allocator produces because it frees blocks in reverse
// order: as an ascending list of pairs they are contiguous on both sides.
func (p *Planner) addRuns(src, dst []uint32) {
	p.pairs = p.pairs[:0]
	for i := range src {
		p.pairs = append(p.pairs, uint64(src[i])<<32|uint64(dst[i]))
	}
	switch {
	case slices.IsSorted(p.pairs):
	case isDescending(p.pairs):
		slices.Reverse(p.pairs)
	default:
		slices.Sort(p.pairs)
	}
	start := len(p.runs)
	for _, pair := range p.pairs {
		s, d := uint32(pair>>32), uint32(pair)
		if last := len(p.runs) - 1; last >= start && p.runs[last].src+p.runs[last].n == s && p.runs[last].dst+p.runs[last].n == d {
			p.runs[last].n++
			continue
		}
		p.runs = append(p.runs, run{s, d, 1})
	}
}

func isDescending(pairs []uint64) bool {
	for i := 1; i < len(pairs); i++ {
		if pairs[i-1] < pairs[i] {
			return false
		}
	}
	return true
}

// expand appends the copies of one run in one region.
func (p *Planner) expand(src, dst *Region, r run, perLogical uint32) error {
	s, d, n := uint64(r.src)*uint64(perLogical), uint64(r.dst)*uint64(perLogical), uint64(r.n)*uint64(perLogical)
	if s+n > uint64(src.NumBlocks) {
		return fmt.Errorf("source block id %d is out of range: the cache has %d blocks", r.src+r.n-1, src.NumBlocks/perLogical)
	}
	if d+n > uint64(dst.NumBlocks) {
		return fmt.Errorf("destination block id %d is out of range: the cache has %d blocks", r.dst+r.n-1, dst.NumBlocks/perLogical)
	}
	if src.Stride == src.Len && dst.Stride == dst.Len {
		p.add(Copy{src.Base + s*src.Stride, dst.Base + d*dst.Stride, n * src.Len})
		return nil
	}
	for i := range n {
		p.add(Copy{src.Base + (s+i)*src.Stride, dst.Base + (d+i)*dst.Stride, src.Len})
	}
	return nil
}

// add joins c to the last copy if both sides continue it, e.g. where two layers adjoin.
func (p *Planner) add(c Copy) {
	if n := len(p.copies); n > 0 {
		if last := &p.copies[n-1]; last.Src+last.Len == c.Src && last.Dst+last.Len == c.Dst {
			last.Len += c.Len
			return
		}
	}
	p.copies = append(p.copies, c)
}
