package blocks

import (
	"cmp"
	"fmt"
	"slices"
)

// CheckComplete checks that the mappings of all its writers cover a consumer's cache, each
// head of each component in each layer once. Its error names the first that is not.
func CheckComplete(dst Cache, writers ...*Mapping) error {
	covers := make(map[int][]Cover) // by region
	for _, m := range writers {
		for _, c := range m.covers {
			if c.Region < len(dst) {
				covers[c.Region] = append(covers[c.Region], c)
			}
		}
	}
	for r := range dst {
		for i := range dst[r].Parts {
			p := &dst[r].Parts[i]
			if err := checkPart(p, covers[r]); err != nil {
				return fmt.Errorf("destination region %d (%.64s), component %.64s: %w", r, dst[r].Name, p.Component, err)
			}
		}
	}
	return nil
}

// checkPart walks the layers of a part, and in each the heads that are written.
func checkPart(p *Part, covers []Cover) error {
	covers = slices.Clone(covers)
	covers = slices.DeleteFunc(covers, func(c Cover) bool { return c.Component != p.Component })
	slices.SortFunc(covers, func(a, b Cover) int { return cmp.Compare(a.Heads.First, b.Heads.First) })
	for layer := p.Layers.First; layer < p.Layers.First+p.Layers.N; layer++ {
		next, end := p.Heads.First, p.Heads.First+p.Heads.N
		for _, c := range covers {
			if first, end := c.Layers.overlap(One(layer)); first >= end {
				continue
			}
			if c.Heads.First > next {
				break
			}
			if c.Heads.First < next {
				return fmt.Errorf("head %d of layer %d has more than one writer", c.Heads.First, layer)
			}
			next += c.Heads.N
		}
		if next != end {
			return fmt.Errorf("head %d of layer %d has no writer", next, layer)
		}
	}
	return nil
}
