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
	if !slices.IsSortedFunc(p.runs, func(a, b run) int { return cmp.Compare(a.src, b.src) }) {
		p.sortBySource()
	}
	runs := p.runs
	p.runs = p.runs[:0]
	for _, r := range runs {
		p.addRun(r)
	}
}

// sortBySource sorts byte by byte, the lowest first. Numbers of units have few bytes, so that
// this takes a small part of the time that comparing runs would.
func (p *Planner) sortBySource() {
	var bits uint32
	for _, r := range p.runs {
		bits |= r.src
	}
	sorted := slices.Grow(p.spare[:0], len(p.runs))[:len(p.runs)]
	for shift := 0; bits>>shift > 0; shift += 8 {
		var next [256]int // where the next run with such a byte goes
		for _, r := range p.runs {
			next[byte(r.src>>shift)]++
		}
		at := 0
		for b, n := range next {
			next[b], at = at, at+n
		}
		for _, r := range p.runs {
			b := byte(r.src >> shift)
			sorted[next[b]] = r
			next[b]++
		}
		p.runs, sorted = sorted, p.runs
	}
	p.spare = sorted
}
