package blocks

import (
	"fmt"
	"math/rand/v2"
)

// world is a random pair of caches and one request between them, of which it is known where
// in the request every block lies.
type world struct {
	src, dst       Cache
	srcIDs, dstIDs [][]uint32
	srcAt, dstAt   []uint64 // token, or number of the state, that a group's list begins with
	tokens         uint64
}

// component of a model as the tests draw it.
type component struct {
	name              string
	size, rows, heads int
}

// gen draws worlds.
type gen struct {
	*rand.Rand
	next uint64 // free address
}

func (g *gen) chance(percent int) bool { return g.IntN(100) < percent }

func (g *gen) between(low, high int) int { return low + g.IntN(high-low+1) }

func (g *gen) pick(of ...int) int { return of[g.IntN(len(of))] }

// span of a group: its blocks on one side.
type blocking struct{ tokens, perID, numBlocks int }

func newWorld(seed uint64) *world {
	g := &gen{Rand: rand.New(rand.NewPCG(seed, 7))}
	w := &world{tokens: uint64(g.between(1, g.pick(10, 40)))}
	groups := g.pick(1, 1, 1, 2, 3)
	shared := groups > 1 && g.chance(40) // all groups in the same memory ...
	any := shared && g.chance(30)        // ... as the same regions
	layer := 0
	var srcShared, dstShared blocking
	for group := range groups {
		state := !shared && g.chance(15)
		s := blocking{g.between(1, 6), g.pick(1, 1, 1, 2, 3), 0}
		d := s
		if g.chance(60) {
			d = blocking{g.between(1, 8), g.pick(1, 1, 2), 0}
		}
		if state {
			s.tokens, d.tokens, d.perID = 0, 0, s.perID
		}
		s.numBlocks, d.numBlocks = s.perID*g.between(8, 42)+g.IntN(s.perID), d.perID*g.between(8, 42)+g.IntN(d.perID)
		if shared && group > 0 {
			s, d = srcShared, dstShared
		}
		srcShared, dstShared = s, d
		window := 0
		if !state && !any && g.chance(20) {
			window = g.between(1, 9)
		}
		w.request(g, s, d, state, uint64(window))
		first := layer
		layer += g.between(1, 3)
		if shared && group > 0 {
			if !any {
				w.share(group, uint32(window))
			}
			continue
		}
		comps, whole := g.components(), !state && s.tokens == d.tokens && g.chance(15)
		place := uint64(group) << 20
		alike, seed := g.chance(50), g.Uint64()
		for _, side := range []struct {
			cache *Cache
			b     blocking
			base  uint64
		}{{&w.src, s, 1<<24 + place}, {&w.dst, d, 1<<30 + place + uint64(g.pick(0, 3))}} {
			layout := g
			if alike { // drawn alike on both sides
				layout = &gen{Rand: rand.New(rand.NewPCG(seed, 1))}
			}
			layout.next = side.base
			*side.cache = append(*side.cache, layout.cache(side.b, group, first, layer, comps, whole, uint32(window))...)
		}
	}
	if any {
		for _, c := range []Cache{w.src, w.dst} {
			for i := range c {
				c[i].Group = AnyGroup
			}
		}
	}
	return w
}

// share gives a group the memory of group 0, as a region of its own.
func (w *world) share(group int, window uint32) {
	for _, c := range []*Cache{&w.src, &w.dst} {
		for _, r := range (*c)[:len(*c):len(*c)] {
			if r.Group != 0 {
				continue
			}
			r.Group, r.Window = group, window
			r.Parts = append([]Part(nil), r.Parts...)
			for i := range r.Parts {
				r.Parts[i].Layers.First += 100 * uint32(group)
			}
			*c = append(*c, r)
		}
	}
}

// request draws the lists of a group.
func (w *world) request(g *gen, s, d blocking, state bool, window uint64) {
	if state {
		n := g.between(1, 2)
		srcIDs, m := g.ids(n, s.numBlocks/s.perID), g.between(0, n+1)
		dstIDs := g.ids(m, d.numBlocks/d.perID)
		w.srcIDs, w.dstIDs = append(w.srcIDs, srcIDs), append(w.dstIDs, dstIDs)
		w.srcAt, w.dstAt = append(w.srcAt, 0), append(w.dstAt, uint64(max(0, n-m)))
		return
	}
	list := func(b blocking, consumer bool) ([]uint32, uint64) {
		per := uint64(b.tokens * b.perID)
		have := (w.tokens + per - 1) / per
		first := uint64(0)
		if keep := (window+per-1)/per + 1; window > 0 && have > keep {
			first = have - keep
		}
		if consumer && g.chance(50) {
			first += uint64(g.IntN(int(have-first) + 1))
		}
		return g.ids(int(have-first), b.numBlocks/b.perID), first * per
	}
	srcIDs, srcAt := list(s, false)
	dstIDs, dstAt := list(d, true)
	w.srcIDs, w.dstIDs = append(w.srcIDs, srcIDs), append(w.dstIDs, dstIDs)
	w.srcAt, w.dstAt = append(w.srcAt, srcAt), append(w.dstAt, dstAt)
}

// ids draws n of the ids below limit: in runs up or down, scattered, seldom one twice.
func (g *gen) ids(n, limit int) []uint32 {
	ids := make([]uint32, 0, n)
	perm := g.Perm(limit)
	style, start := g.IntN(3), 0
	if n < limit {
		start = g.IntN(limit - n)
	}
	for i := range n {
		switch {
		case style == 0 && n <= limit:
			ids = append(ids, uint32(start+i))
		case style == 1 && n <= limit:
			ids = append(ids, uint32(start+n-1-i))
		default:
			ids = append(ids, uint32(perm[i%limit]))
		}
	}
	if n > 1 && g.chance(3) {
		ids[0] = ids[n-1]
	}
	return ids
}

func (g *gen) components() []component {
	list := []component{{"k", g.between(1, 3), g.pick(1, 1, 1, 2, 3), g.between(1, 4)}}
	if g.chance(70) {
		list = append(list, component{"v", list[0].size, g.pick(1, list[0].rows), list[0].heads})
	}
	if g.chance(25) {
		list = append(list, component{"index", g.between(1, 4), 1, 1})
	}
	return list
}

// cache draws how one side keeps the layers from first to before end.
func (g *gen) cache(b blocking, group, first, end int, comps []component, whole bool, window uint32) Cache {
	sets := [][]component{}
	packed := g.chance(50)
	for _, c := range comps {
		if k := len(sets) - 1; packed && k >= 0 && sets[k][0].heads == c.heads && sets[k][0].rows == c.rows {
			sets[k] = append(sets[k], c)
		} else {
			sets = append(sets, []component{c})
		}
	}
	across := g.chance(35) // layers within a block
	regions := end - first
	layers := 1
	if across {
		regions, layers = 1, end-first
	}
	interleaved := g.chance(30)
	var cache Cache
	var parts []Part
	var size uint64
	outside := len(sets) == 1 && !interleaved && g.chance(25)
	for _, set := range sets {
		p, n := g.nest(set, b, layers, whole, outside)
		for i := range p {
			p[i].Offset += size
		}
		parts, size = append(parts, p...), size+n
	}
	stride := size + uint64(g.pick(0, 0, 3))
	if interleaved {
		stride *= uint64(regions)
	}
	outer := uint64(1)
	if outside { // heads, or layers, outside the blocks
		for i := range parts {
			a := &parts[i].Heads
			if layers > 1 {
				a = &parts[i].Layers
			}
			a.Stride = stride * uint64(b.numBlocks)
			outer = uint64(a.N)
		}
	}
	for i := range regions {
		r := Region{Name: fmt.Sprintf("layers.%d", first+i), Stride: stride, NumBlocks: uint32(b.numBlocks),
			PerID: uint32(b.perID), Group: group, Tokens: uint32(b.tokens), Window: window, Parts: append([]Part(nil), parts...)}
		for k := range r.Parts {
			r.Parts[k].Layers.First = uint32(first + i)
		}
		r.Base = g.next
		switch {
		case interleaved && i < regions-1:
			g.next += stride / uint64(regions)
		case interleaved:
			g.next = cache.base(g.next) + stride*uint64(b.numBlocks) + uint64(g.pick(0, 0, 5))
		default:
			g.next += stride*uint64(b.numBlocks)*outer + uint64(g.pick(0, 0, 5))
		}
		cache = append(cache, r)
	}
	return cache
}

func (c Cache) base(or uint64) uint64 {
	if len(c) == 0 {
		return or
	}
	return c[0].Base
}

// nest draws the order of the axes of components that lie packed, and says how long it is.
func (g *gen) nest(set []component, b blocking, layers int, whole, outside bool) ([]Part, uint64) {
	heads := Axis{N: uint32(g.between(1, set[0].heads))}
	heads.First = uint32(g.IntN(set[0].heads - int(heads.N) + 1))
	if g.chance(50) {
		heads = Axis{N: uint32(set[0].heads)}
	}
	layer := Axis{N: uint32(layers)}
	element := uint64(0)
	for _, c := range set {
		element += uint64(c.size)
	}
	stride, token, row := element+uint64(g.pick(0, 0, 0, 1)), uint64(0), uint64(0)
	for _, axis := range g.Perm(4) {
		switch axis {
		case 0:
			if !(outside && layers == 1) {
				heads.Stride = stride
				stride *= uint64(heads.N)
			}
		case 1:
			if !(outside && layers > 1) {
				layer.Stride = stride
				stride *= uint64(layer.N)
			}
		case 2:
			if b.tokens > 0 && !whole {
				token = stride
				stride *= uint64(b.tokens)
			}
		case 3:
			row = stride
			stride *= uint64(set[0].rows)
		}
		stride += uint64(g.pick(0, 0, 0, 2))
	}
	var parts []Part
	at := uint64(0)
	for _, c := range set {
		parts = append(parts, Part{Component: c.name, Offset: at, Size: uint64(c.size), Rows: uint32(c.rows), RowStride: row,
			Layers: layer, Heads: heads, HeadsOf: uint32(c.heads), TokenStride: token})
		at += uint64(c.size)
	}
	return parts, stride
}
