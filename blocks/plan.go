package blocks

import "fmt"

// Plan is what to copy for one request.
type Plan struct {
	Pastes []Paste // valid until the planner's next plan
	Copies int     // how many that are
	Bytes  uint64  // of all copies
	Pieces uint64  // how many copies there would be if no two blocks adjoined
}

// PerMiB is how many copies a mebibyte takes.
func (p *Plan) PerMiB() float64 { return perMiB(uint64(p.Copies), p.Bytes) }

func perMiB(copies, bytes uint64) float64 {
	if bytes == 0 {
		return 0
	}
	return float64(copies) * (1 << 20) / float64(bytes)
}

// Planner turns block ids into copies. Its buffers are reused from plan to plan, so a warm
// Planner does not allocate. It is not for concurrent use.
type Planner struct {
	runs   []run
	spare  []run    // of sortBySource
	laid   []layout // by shape
	pastes []Paste
	whole  list // the copies of a plan whose pastes meet
}

// layout is a shape's share of a plan, as it is pasted into each of its places.
type layout struct {
	list
	bytes uint64
}

// maxCopies bounds the memory that a plan takes once it is written down.
const maxCopies = 1 << 26

// Plan pairs the block ids of a request, one list per group in token order, and returns
// what to copy.
//
// Both lists of a group end with the request's last block, so what moves is the end that
// they have in common; the consumer's list may begin later because it has a prefix cached,
// and may be empty. tokens is how many tokens the two lists end with; 0 if not known. It
// only matters where blocks of the two sides have unequally many tokens. Without it the
// producer's list is taken to begin at token 0, and where that does not settle how the
// lists lie to each other, ErrTokens is returned.
//
// The copies are the fewest there can be: no two of them can be joined, wherever in the
// plan they stand. They are ordered by source address, unless source bytes go to several
// places. Every id is checked against both caches.
func (p *Planner) Plan(m *Mapping, srcIDs, dstIDs [][]uint32, tokens uint64) (Plan, error) {
	if err := m.checkIDs(srcIDs, dstIDs); err != nil {
		return Plan{}, err
	}
	for len(p.laid) < len(m.shapes) {
		p.laid = append(p.laid, layout{})
	}
	var plan Plan
	var most uint64 // copies there can be so far
	shape := 0
	for i := range m.walks {
		units, err := p.walk(m, &m.walks[i], srcIDs, dstIDs, tokens)
		if err != nil {
			return Plan{}, err
		}
		for ; shape < len(m.shapes) && m.shapes[shape].walk == i; shape++ {
			s := &m.shapes[shape]
			pieces := units * uint64(len(s.chunks.copies))
			plan.Pieces += pieces * s.places
			if s.dense {
				pieces = uint64(len(p.runs))
			}
			if most += min(pieces, maxCopies+1) * s.places; most > maxCopies {
				return Plan{}, fmt.Errorf("the request falls into more than %d pieces: the caches are laid out too differently for its length", maxCopies)
			}
			p.laid[shape].fill(s, p.runs)
		}
	}
	plan.Pastes, plan.Copies, plan.Bytes = p.paste(m.places)
	return plan, nil
}

// walk makes the runs of the groups that share a walk, of so many units.
func (p *Planner) walk(m *Mapping, w *walk, srcIDs, dstIDs [][]uint32, tokens uint64) (units uint64, err error) {
	p.runs = p.runs[:0]
	for g := range srcIDs {
		if w.groups>>g&1 == 0 {
			continue
		}
		common, err := w.align(uint64(len(srcIDs[g])), uint64(len(dstIDs[g])), tokens, uint64(m.bounds[g].window))
		if err != nil {
			return 0, fmt.Errorf("group %d: %w", g, err)
		}
		units += common.n
		p.addPieces(srcIDs[g], dstIDs[g], common, w.src/w.unit, w.dst/w.unit)
	}
	p.sortRuns()
	return units, nil
}

// fill lays out the runs.
func (l *layout) fill(s *shape, runs []run) {
	l.copies, l.mixed = l.copies[:0], s.chunks.mixed
	for _, r := range runs {
		s.lay(&l.list, r)
	}
	l.tidy()
	l.bytes = l.list.bytes()
}

func (m *Mapping) checkIDs(srcIDs, dstIDs [][]uint32) error {
	if n := len(srcIDs); n != len(dstIDs) || n < m.groups || n > MaxGroups {
		return fmt.Errorf("%d source and %d destination groups, the caches have %d", len(srcIDs), len(dstIDs), m.groups)
	}
	for g := range srcIDs {
		if err := checkIDs(srcIDs[g], m.bounds[g].src); err != nil {
			return fmt.Errorf("group %d: source %w", g, err)
		}
		if err := checkIDs(dstIDs[g], m.bounds[g].dst); err != nil {
			return fmt.Errorf("group %d: destination %w", g, err)
		}
	}
	return nil
}

func checkIDs(ids []uint32, limit uint32) error {
	for _, id := range ids {
		if id >= limit {
			return fmt.Errorf("block id %d is out of range: the cache has %d blocks", id, limit)
		}
	}
	return nil
}

// PerMiB is how many copies a mebibyte takes if no two blocks adjoin.
func (m *Mapping) PerMiB() float64 {
	var copies, bytes uint64
	for _, at := range m.places {
		chunks := &m.shapes[at.shape].chunks
		copies += uint64(len(chunks.copies))
		bytes += chunks.bytes()
	}
	return perMiB(copies, bytes)
}
