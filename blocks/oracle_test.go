package blocks

import (
	"cmp"
	"errors"
	"slices"
	"testing"
)

// move is one byte and where it goes.
type move struct{ src, dst uint64 }

// coordinates say which row of which element.
type coordinates struct{ layer, head, position, row uint64 }

// address is where a row begins, by the formula of Part.
func address(r *Region, p *Part, ids []uint32, at uint64, c coordinates) uint64 {
	block, token := c.position-at, uint64(0)
	if r.Tokens > 0 {
		block, token = (c.position-at)/uint64(r.Tokens), (c.position-at)%uint64(r.Tokens)
	}
	per := uint64(r.PerID)
	return r.Base + (uint64(ids[block/per])*per+block%per)*r.Stride + p.Offset + (c.layer-uint64(p.Layers.First))*p.Layers.Stride +
		(c.head-uint64(p.Heads.First))*p.Heads.Stride + token*p.TokenStride + c.row*p.RowStride
}

// each visits every row of every (layer, head, token) of every component that both sides have.
func (w *world) each(visit func(src, dst uint64, p *Part, c coordinates)) {
	for g := range w.srcIDs {
		for s := range w.src {
			for d := range w.dst {
				src, dst := &w.src[s], &w.dst[d]
				if (src.Group != g && src.Group != AnyGroup) || (dst.Group != g && dst.Group != AnyGroup) {
					continue
				}
				for i := range src.Parts {
					for k := range dst.Parts {
						if src.Parts[i].Component == dst.Parts[k].Component {
							w.eachOf(g, src, dst, &src.Parts[i], &dst.Parts[k], visit)
						}
					}
				}
			}
		}
	}
}

// eachOf visits what a pair of parts has in common.
func (w *world) eachOf(g int, src, dst *Region, a, b *Part, visit func(src, dst uint64, p *Part, c coordinates)) {
	perID := func(r *Region) uint64 { return uint64(r.PerID) * uint64(max(r.Tokens, 1)) }
	srcAt, dstAt := w.srcAt[g], w.dstAt[g]
	if src.Tokens == 0 {
		srcAt, dstAt = srcAt*perID(src), dstAt*perID(dst)
	}
	end := min(srcAt+uint64(len(w.srcIDs[g]))*perID(src), dstAt+uint64(len(w.dstIDs[g]))*perID(dst))
	within := func(x Axis, i uint32) bool { return i >= x.First && i < x.First+x.N }
	for layer := a.Layers.First; within(a.Layers, layer); layer++ {
		for head := a.Heads.First; within(a.Heads, head); head++ {
			if !within(b.Layers, layer) || !within(b.Heads, head) {
				continue
			}
			for position := max(srcAt, dstAt); position < end; position++ {
				for row := range a.rows() {
					c := coordinates{uint64(layer), uint64(head), position, row}
					visit(address(src, a, w.srcIDs[g], srcAt, c), address(dst, b, w.dstIDs[g], dstAt, c), a, c)
				}
			}
		}
	}
}

func compareMoves(a, b move) int { return cmp.Or(cmp.Compare(a.src, b.src), cmp.Compare(a.dst, b.dst)) }

// moves walks the coordinates one by one.
func (w *world) moves() []move {
	var list []move
	w.each(func(src, dst uint64, p *Part, _ coordinates) {
		for b := range p.Size {
			list = append(list, move{src + b, dst + b})
		}
	})
	slices.SortFunc(list, compareMoves)
	return slices.Compact(list)
}

// movesOf takes copies apart.
func movesOf(copies []Copy) []move {
	var list []move
	for _, c := range copies {
		for b := range c.Len {
			list = append(list, move{c.Src + b, c.Dst + b})
		}
	}
	slices.SortFunc(list, compareMoves)
	return list
}

// checkMinimal fails if two copies can be joined, wherever they are.
func checkMinimal(t testing.TB, seed uint64, copies []Copy) {
	starts := make(map[move]bool, len(copies))
	for _, c := range copies {
		starts[move{c.Src, c.Dst}] = true
	}
	for _, c := range copies {
		if c.Len == 0 || starts[move{c.Src + c.Len, c.Dst + c.Len}] {
			t.Fatalf("seed %d: the copy %+v is empty or can be joined to another in %+v", seed, c, copies)
		}
	}
}

const worlds = 12000

// TestPlanAgreesWithCoordinates compares plans with a walk over all coordinates.
func TestPlanAgreesWithCoordinates(t *testing.T) {
	var p Planner
	var empty, joined, met, several, mixed, unequal, ambiguous, bytes, copies int
	for seed := range uint64(worlds) {
		w := newWorld(seed)
		m, err := NewMapping(w.src, w.dst)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want := w.moves()
		plan, err := p.Plan(m, w.srcIDs, w.dstIDs, w.tokens)
		if err != nil {
			t.Fatalf("seed %d: %v\n%+v", seed, err, w)
		}
		check := func() {
			list := plan.Append(nil)
			if len(list) != plan.Copies {
				t.Fatalf("seed %d: %d copies reported, want %d", seed, plan.Copies, len(list))
			}
			if got := movesOf(list); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %d bytes move, want %d\ncopies %+v\n%+v", seed, len(got), len(want), list, w)
			}
			if plan.Bytes != uint64(len(want)) {
				t.Fatalf("seed %d: %d bytes reported, want %d", seed, plan.Bytes, len(want))
			}
			checkMinimal(t, seed, list)
		}
		check()
		bytes += len(want)
		copies += plan.Copies
		count(&empty, len(want) == 0)
		count(&joined, plan.Pieces > uint64(plan.Copies))
		count(&mixed, p.whole.mixed)
		count(&met, len(p.whole.copies) > 0)
		count(&several, len(plan.Pastes) > 1)
		for i := range m.walks {
			count(&unequal, m.walks[i].src != m.walks[i].dst)
		}
		// Without the number of tokens the plan is the same, or refused.
		switch plan, err = p.Plan(m, w.srcIDs, w.dstIDs, 0); {
		case err == nil:
			check()
		case errors.Is(err, ErrTokens):
			ambiguous++
		default:
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%d bytes in %d copies; of %d worlds: %d without a move, %d with joins, %d whose pastes meet, %d with several pastes, %d with bytes that go to two places, %d walks with unequal blocks, %d ambiguous without tokens",
		bytes, copies, worlds, empty, joined, met, several, mixed, unequal, ambiguous)
	if empty > worlds/3 || joined < worlds/10 || met < worlds/10 || several < worlds/10 || mixed < 10 || unequal < worlds/10 || ambiguous < worlds/50 {
		t.Error("the worlds have become too much alike")
	}
}

func count(n *int, is bool) {
	if is {
		*n++
	}
}
