package blocks

import (
	"fmt"
	"math"
)

// Mapping is what the caches of a producer and a consumer rank have in common, ready to
// plan with. It is not changed any more, so that several goroutines may use it.
type Mapping struct {
	walks  []walk
	shapes []shape // ordered by walk
	places []place // ordered by source address
	covers []Cover
	groups int // that a request must have at least
	bounds [MaxGroups]bounds
}

// bounds is what is known of the block lists of a group.
type bounds struct {
	src, dst uint32 // ids end before
	window   uint32
}

// Cover is a piece of the consumer's cache that a mapping writes: these heads of these
// layers, in Regions[Region]. Strides are 0.
type Cover struct {
	Region        int
	Component     string
	Layers, Heads Axis
}

// NewMapping intersects two descriptions by layer, component and head. What only one side
// has is left out: see Covers and CheckComplete. A mapping may be empty, as for a producer
// rank that only notifies. What both have in ways that do not fit is refused, with the
// first difference and both descriptions in the error; so is a description that Check
// refuses.
func NewMapping(src, dst Cache) (*Mapping, error) {
	m, err := newMapping(src, dst)
	if err != nil {
		return nil, fmt.Errorf("%w (source: %v; destination: %v)", err, src, dst)
	}
	return m, nil
}

func newMapping(src, dst Cache) (*Mapping, error) {
	if err := src.Check(); err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	if err := dst.Check(); err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	m := &Mapping{}
	for g := range m.bounds {
		m.bounds[g] = bounds{src.IDs(g), dst.IDs(g), max(src.window(g), dst.window(g))}
	}
	type ref struct{ region, part int }
	wanted := map[string][]ref{}
	for d := range dst {
		for i := range dst[d].Parts {
			name := dst[d].Parts[i].Component
			wanted[name] = append(wanted[name], ref{d, i})
		}
	}
	b := builder{kinds: map[kind]int{}}
	for s := range src {
		for i := range src[s].Parts {
			a := &src[s].Parts[i]
			for _, at := range wanted[a.Component] {
				pair := pair{&src[s], &dst[at.region], a, &dst[at.region].Parts[at.part]}
				layers, heads, err := pair.overlap()
				if err != nil {
					return nil, fmt.Errorf("%s of layer %d, region %d at the source and %d at the destination: %w",
						a.Component, layers.First, s, at.region, err)
				}
				if layers.N == 0 || heads.N == 0 {
					continue
				}
				m.groups = max(m.groups, pair.src.Group+1, pair.dst.Group+1)
				m.covers = append(m.covers, Cover{at.region, a.Component, layers, heads})
				if err := b.add(&pair, layers, heads); err != nil {
					return nil, err
				}
			}
		}
	}
	if err := b.build(m); err != nil {
		return nil, err
	}
	return m, nil
}

// IDs is where the block ids of a group end; 2^32-1 if no region is of the group.
func (c Cache) IDs(group int) uint32 {
	ids := uint32(math.MaxUint32)
	for i := range c {
		if c[i].groups()>>group&1 == 1 {
			ids = min(ids, c[i].ids())
		}
	}
	return ids
}

// pair is a part on either side that may hold the same thing.
type pair struct {
	src, dst *Region
	a, b     *Part // of src and dst
}

// overlap is which layers and heads both parts hold. It fails if they hold the same layers
// in ways that do not fit.
func (p *pair) overlap() (layers, heads Axis, err error) {
	first, end := p.a.Layers.overlap(p.b.Layers)
	if first >= end {
		return Axis{}, Axis{}, nil
	}
	layers = Axis{First: first, N: end - first}
	if err := p.fit(); err != nil {
		return layers, Axis{}, err
	}
	if first, end = p.a.Heads.overlap(p.b.Heads); first < end {
		heads = Axis{First: first, N: end - first}
	}
	return layers, heads, nil
}

func (p *pair) fit() error {
	differ := func(what string, here, there any) error {
		return fmt.Errorf("%s %v and %v", what, here, there)
	}
	kind := func(tokens uint32) string {
		if tokens == 0 {
			return "a state"
		}
		return "tokens"
	}
	divisible := func(p *Part) string {
		if p.TokenStride == 0 {
			return "whole"
		}
		return "by token"
	}
	s, d, a, b := p.src, p.dst, p.a, p.b
	whole := a.TokenStride == 0
	switch {
	case s.groups()&d.groups() == 0:
		return differ("groups", s.Group, d.Group)
	case a.Size != b.Size:
		return differ("bytes of an element", a.Size, b.Size)
	case a.rows() != b.rows():
		return differ("rows of an element", a.rows(), b.rows())
	case a.HeadsOf != b.HeadsOf:
		return differ("heads of the model", a.HeadsOf, b.HeadsOf)
	case kind(s.Tokens) != kind(d.Tokens):
		return differ("blocks of", kind(s.Tokens), kind(d.Tokens))
	case s.Window != d.Window && s.Group == d.Group:
		return differ("windows of", s.Window, d.Window)
	case divisible(a) != divisible(b):
		return differ("blocks are divided", divisible(a), divisible(b))
	case whole && s.Tokens != d.Tokens:
		return differ("elements cannot be divided, tokens of a block", s.Tokens, d.Tokens)
	case s.Tokens == 0 && s.PerID != d.PerID:
		return differ("blocks of a state", s.PerID, d.PerID)
	}
	return nil
}

// Covers lists what the mapping writes of the consumer's cache.
func (m *Mapping) Covers() []Cover { return m.covers }
