package blocks

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// What a peer's description can make NewMapping hold.
const (
	maxChunks = 1 << 20
	maxPairs  = 1 << 16 // of parts
)

// builder turns pairs of parts into shapes and places, in three steps: a nest of chunks for
// each pair (add), the chunks one by one (unfold), and those of one block together (gather).
type builder struct {
	kinds  map[kind]int
	nests  []nest
	chunks []located
}

// kind is how to pair units and how to find them.
type kind struct {
	walk  walk // without groups
	lines lines
}

// located is a chunk with its kind.
type located struct {
	Copy
	kind   int
	groups uint64 // the set of groups that use it
	walk   int    // index in Mapping.walks, once known
}

// nest is a chunk that is repeated along axes.
type nest struct {
	located
	axes [4]axis
}

// axis is n chunks, so many bytes apart.
type axis struct{ n, src, dst uint64 }

// add takes in what a pair of parts has in common.
func (b *builder) add(p *pair, layers, heads Axis) error {
	if len(b.nests) == maxPairs {
		return fmt.Errorf("more than %d pairs of parts hold the same layers and heads", maxPairs)
	}
	w := walk{unit: 1, state: p.src.Tokens == 0,
		src: uint64(p.src.PerID), dst: uint64(p.dst.PerID)}
	if !w.state {
		w.unit = gcd(uint64(p.src.Tokens), uint64(p.dst.Tokens))
		w.src, w.dst = w.src*uint64(p.src.Tokens), w.dst*uint64(p.dst.Tokens)
	}
	if n := max(p.src.units(w.unit), p.dst.units(w.unit)); n > math.MaxUint32 {
		return fmt.Errorf("%d units of %d tokens are too many", n, w.unit)
	}
	k := kind{w, lines{p.src.line(p.a, w.unit), p.dst.line(p.b, w.unit)}}
	if _, ok := b.kinds[k]; !ok {
		b.kinds[k] = len(b.kinds)
	}
	n := nest{located: located{kind: b.kinds[k], groups: p.src.groups() & p.dst.groups()}}
	n.Copy = Copy{p.src.Base + p.a.at(layers, heads), p.dst.Base + p.b.at(layers, heads), p.a.Size}
	n.axes = [4]axis{
		{uint64(layers.N), p.a.Layers.Stride, p.b.Layers.Stride},
		{uint64(heads.N), p.a.Heads.Stride, p.b.Heads.Stride},
		{p.a.rows(), p.a.RowStride, p.b.RowStride},
		{w.unit, p.a.TokenStride, p.b.TokenStride},
	}
	if p.a.TokenStride == 0 {
		n.axes[3].n = 1
	}
	for i := range n.axes {
		if n.axes[i].n == 1 {
			n.axes[i] = axis{n: 1} // the strides of one are nothing to tell nests apart by
		}
	}
	b.nests = append(b.nests, n)
	return nil
}

// at is where in a block the first of these layers and heads lies.
func (p *Part) at(layers, heads Axis) uint64 {
	return p.Offset + uint64(layers.First-p.Layers.First)*p.Layers.Stride + uint64(heads.First-p.Heads.First)*p.Heads.Stride
}

// units is how many units the region has.
func (r *Region) units(unit uint64) uint64 {
	return uint64(r.NumBlocks) * (uint64(max(r.Tokens, 1)) / unit)
}

func gcd(a, b uint64) uint64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// build finishes the mapping.
func (b *builder) build(m *Mapping) error {
	if err := b.unfold(); err != nil {
		return err
	}
	b.uniteGroups()
	b.findWalks(m)
	b.gather(m)
	slices.SortFunc(m.places, func(x, y place) int {
		return cmp.Or(cmp.Compare(x.src, y.src), cmp.Compare(x.dst, y.dst))
	})
	return nil
}

// unfold makes chunks of nests. Nests that adjoin in every element, as packed K and V do,
// and axes whose elements adjoin are joined first.
func (b *builder) unfold() error {
	slices.SortFunc(b.nests, func(x, y nest) int { return x.compare(&y.located) })
	joined := b.nests[:0]
	for _, n := range b.nests {
		if k := len(joined) - 1; k >= 0 && joined[k].sameKind(&n.located) && joined[k].axes == n.axes && joined[k].continuedBy(n.Copy) {
			joined[k].Len += n.Len
			continue
		}
		joined = append(joined, n)
	}
	for _, n := range joined {
		n.flatten()
		count := reach{at: 1}
		for _, a := range n.axes {
			count.times(a.n)
		}
		count.add(1, uint64(len(b.chunks)))
		if count.over || count.at > maxChunks {
			return fmt.Errorf("blocks fall into more than %d pieces", maxChunks)
		}
		b.repeat(&n)
	}
	return nil
}

// repeat appends the chunks of a nest: the first, and along each axis all there are so far.
func (b *builder) repeat(n *nest) {
	start := len(b.chunks)
	b.chunks = append(b.chunks, n.located)
	for _, a := range n.axes {
		end := len(b.chunks)
		for i := uint64(1); i < a.n; i++ {
			for _, c := range b.chunks[start:end] {
				c.Src, c.Dst = c.Src+i*a.src, c.Dst+i*a.dst
				b.chunks = append(b.chunks, c)
			}
		}
	}
}

// flatten makes one chunk of an axis whose chunks adjoin on both sides, until none is left.
func (n *nest) flatten() {
	for again := true; again; {
		again = false
		for i, x := range n.axes {
			if x.n > 1 && x.src == n.Len && x.dst == n.Len {
				n.Len, n.axes[i], again = n.Len*x.n, axis{n: 1}, true
			}
		}
	}
}

// uniteGroups makes one chunk of equal ones. They come from groups that share memory, whose
// blocks are to be sorted and joined together.
func (b *builder) uniteGroups() {
	slices.SortFunc(b.chunks, func(x, y located) int { return cmp.Or(cmp.Compare(x.kind, y.kind), x.compareAddress(&y)) })
	united := b.chunks[:0]
	for _, c := range b.chunks {
		if k := len(united) - 1; k >= 0 && united[k].kind == c.kind && united[k].Copy == c.Copy {
			united[k].groups |= c.groups
			continue
		}
		united = append(united, c)
	}
	b.chunks = united
}

// findWalks tells the walks apart, now that it is known which groups go together, and sorts
// the chunks by walk.
func (b *builder) findWalks(m *Mapping) {
	byKind := make([]walk, len(b.kinds))
	for k, i := range b.kinds {
		byKind[i] = k.walk
	}
	known := map[walk]int{}
	for i := range b.chunks {
		c := &b.chunks[i]
		w := byKind[c.kind]
		w.groups = c.groups
		if _, ok := known[w]; !ok {
			known[w] = len(m.walks)
			m.walks = append(m.walks, w)
		}
		c.walk = known[w]
	}
	slices.SortFunc(b.chunks, func(x, y located) int { return x.compare(&y) })
}

// gather makes a shape of the chunks that lie within one block of the source, joined where
// they adjoin, and remembers where it is found.
func (b *builder) gather(m *Mapping) {
	kinds := make([]kind, len(b.kinds))
	for k, i := range b.kinds {
		kinds[i] = k
	}
	known := map[string]int{}
	for i := 0; i < len(b.chunks); {
		first := b.chunks[i]
		s := shape{walk: first.walk, lines: kinds[first.kind].lines}
		limit := first.Src + max(first.Len, s.src.stride)
		for ; i < len(b.chunks) && b.chunks[i].sameKind(&first) && b.chunks[i].Src+b.chunks[i].Len <= limit; i++ {
			s.chunks.paste([]Copy{b.chunks[i].Copy}, -first.Src, -first.Dst)
		}
		s.chunks.tidy()
		s.settle()
		key := s.key(first.kind)
		if _, ok := known[key]; !ok {
			known[key] = len(m.shapes)
			m.shapes = append(m.shapes, s)
		}
		m.shapes[known[key]].places++
		m.places = append(m.places, place{known[key], first.Src, first.Dst})
	}
}

// key is equal for equal shapes.
func (s *shape) key(kind int) string {
	key := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(kind)), uint64(s.walk))
	for _, c := range s.chunks.copies {
		key = binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(key, c.Src), c.Dst), c.Len)
	}
	return string(key)
}

func (l *located) sameKind(o *located) bool {
	return l.kind == o.kind && l.groups == o.groups && l.walk == o.walk
}

func (l *located) compareAddress(o *located) int {
	return cmp.Or(cmp.Compare(l.Src, o.Src), cmp.Compare(l.Dst, o.Dst), cmp.Compare(l.Len, o.Len))
}

// compare orders by walk, kind and address.
func (l *located) compare(o *located) int {
	return cmp.Or(cmp.Compare(l.walk, o.walk), cmp.Compare(l.kind, o.kind), cmp.Compare(l.groups, o.groups), l.compareAddress(o))
}
