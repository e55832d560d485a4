package blocks

import (
	"cmp"
	"slices"
)

// run is n units that are consecutive on both sides.
type run struct{ src, dst, n uint32 }

// addPieces pairs the units of two lists, perSrc and perDst of them to a block id. A piece
// ends where a block of either side does.
func (p *Planner) addPieces(srcIDs, dstIDs []uint32, s span, perSrc, perDst uint64) {
	srcIDs, dstIDs = srcIDs[s.src/perSrc:], dstIDs[s.dst/perDst:]
	i, k := s.src%perSrc, s.dst%perDst
	for left := s.n; left > 0; {
		n := min(perSrc-i, perDst-k, left)
		p.addRun(run{uint32(uint64(srcIDs[0])*perSrc + i), uint32(uint64(dstIDs[0])*perDst + k), uint32(n)})
		left -= n
		if i += n; i == perSrc {
			srcIDs, i = srcIDs[1:], 0
		}
		if k += n; k == perDst {
			dstIDs, k = dstIDs[1:], 0
		}
	}
}

// addRun joins a run to the last if it continues it, forwards or backwards: vLLM's
// allocator hands out descending ids, because it frees blocks in reverse order.
func (p *Planner) addRun(r run) {
	if k := len(p.runs) - 1; k >= 0 {
		switch last := &p.runs[k]; {
		case last.src+last.n == r.src && last.dst+last.n == r.dst:
			last.n += r.n
			return
		case r.src+r.n == last.src && r.dst+r.n == last.dst:
			last.src, last.dst, last.n = r.src, r.dst, last.n+r.n
			return
		}
	}
	p.runs = append(p.runs, r)
}

// sortRuns sorts by source and joins what has become neighbours.
func (p *Planner) sortRuns() {
	compare := func(a, b run) int { return cmp.Or(cmp.Compare(a.src, b.src), cmp.Compare(a.dst, b.dst)) }
	if !slices.IsSortedFunc(p.runs, compare) {
		slices.SortFunc(p.runs, compare)
	}
	runs := p.runs
	p.runs = p.runs[:0]
	for _, r := range runs {
		p.addRun(r)
	}
}
