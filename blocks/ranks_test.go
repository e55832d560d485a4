package blocks

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestRanks(t *testing.T) {
	for _, c := range []struct {
		ranks           Ranks
		rank, heads     int // of the consumer
		writers, silent []int
		notifications   int
	}{
		{Ranks{1, 1, 1}, 0, 8, []int{0}, nil, 1},
		{Ranks{4, 1, 2}, 1, 8, []int{2, 3}, nil, 2},
		{Ranks{2, 1, 4}, 3, 8, []int{1}, nil, 1},
		{Ranks{2, 3, 1}, 0, 8, []int{0, 1}, nil, 6},
		{Ranks{8, 1, 2}, 1, 4, []int{4, 6}, []int{5, 7}, 4}, // replicated heads
		{Ranks{8, 1, 4}, 1, 2, []int{2}, []int{3}, 2},       // on both sides
		{Ranks{4, 1, 2}, 1, 1, []int{2}, []int{3}, 2},       // MLA
		{Ranks{8, 2, 1}, 0, 1, []int{0}, []int{1, 2, 3, 4, 5, 6, 7}, 16},
		{Ranks{1, 1, 4}, 2, 1, []int{0}, nil, 1},
	} {
		if err := c.ranks.Check(c.heads); err != nil {
			t.Error(err)
		}
		writers, silent := c.ranks.Split(c.rank, c.heads)
		if !slices.Equal(writers, c.writers) || !slices.Equal(silent, c.silent) || c.ranks.Notifications() != c.notifications {
			t.Errorf("%+v: consumer %d of %d heads has writers %v, silent %v and waits for %d notifications, want %v, %v and %d",
				c.ranks, c.rank, c.heads, writers, silent, c.ranks.Notifications(), c.writers, c.silent, c.notifications)
		}
	}
}

func TestRanksRefuse(t *testing.T) {
	for _, c := range []struct {
		ranks Ranks
		heads int
	}{{Ranks{0, 1, 1}, 8}, {Ranks{1, 0, 1}, 8}, {Ranks{1, 1, 0}, 8}, {Ranks{3, 1, 2}, 6}, {Ranks{4, 1, 2}, 6}, {Ranks{2, 1, 4}, 3}, {Ranks{1, 1, 1}, 0}} {
		if c.ranks.Check(c.heads) == nil {
			t.Errorf("%+v with %d heads passes", c.ranks, c.heads)
		}
	}
}

// hybrid is the cache of one rank of a model with 4 layers: attention with so many heads, and
// in every second layer a state of 16 channels and 8 heads. stage of stages holds its layers.
func hybrid(base uint64, rank, tp, heads, stage, stages, tokens int) Cache {
	var c Cache
	for l := 4 * stage / stages; l < 4*(stage+1)/stages; l++ {
		layer := One(uint32(l))
		at := base + uint64(l)<<16
		if l%2 == 1 {
			x, s := Heads(rank, tp, 16), Heads(rank, tp, 8)
			x.Stride, s.Stride = 6, 10
			c = append(c, Region{Name: fmt.Sprintf("layers.%d", l), Base: at, Stride: 512, NumBlocks: 8, PerID: 1, Group: 1, Parts: []Part{
				{Component: "conv.x", Size: 6, Layers: layer, Heads: x, HeadsOf: 16},
				{Component: "conv.B", Offset: uint64(x.N) * 6, Size: 6, Layers: layer, Heads: x, HeadsOf: 16},
				{Component: "temporal", Offset: uint64(x.N) * 12, Size: 10, Layers: layer, Heads: s, HeadsOf: 8}}})
			continue
		}
		h := Heads(rank, tp, heads)
		h.Stride = uint64(tokens) * 8
		c = append(c, Region{Name: fmt.Sprintf("layers.%d", l), Base: at, Stride: uint64(h.N) * h.Stride, NumBlocks: 16, PerID: 1, Tokens: uint32(tokens), Parts: []Part{
			{Component: "k", Size: 4, Layers: layer, Heads: h, HeadsOf: uint32(heads), TokenStride: 8},
			{Component: "v", Offset: 4, Size: 4, Layers: layer, Heads: h, HeadsOf: uint32(heads), TokenStride: 8}}})
	}
	return c
}

// TestRanksWriteEveryByteOnce runs the pushes of all producer ranks and stages to all
// consumer ranks, and reads what has come by coordinates.
func TestRanksWriteEveryByteOnce(t *testing.T) {
	const tokens = 40
	srcIDs, dstIDs := [][]uint32{{1, 2, 9, 8, 7}, {3}}, [][]uint32{{4, 12, 2}, {6}}
	for _, r := range []Ranks{{1, 1, 1}, {2, 1, 2}, {4, 1, 1}, {4, 1, 2}, {8, 1, 2}, {1, 1, 4}, {2, 1, 8}, {2, 2, 1}, {4, 4, 2}, {1, 3, 2}} {
		for _, heads := range []int{1, 2, 8} {
			what := fmt.Sprintf("%+v with %d heads", r, heads)
			if err := r.Check(heads, 16, 8); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			for d := range r.DstTP {
				dst := hybrid(1<<30, d, r.DstTP, heads, 0, 1, 16)
				memory, written := newMemory(1<<30, 4<<16), make([]int, 4<<16)
				var writers []*Mapping
				for stage := range r.SrcPP {
					for _, p := range r.Producers(d) {
						if !slices.Contains(r.Consumers(p), d) {
							t.Fatalf("%s: producer %d does not know consumer %d", what, p, d)
						}
						src := hybrid(1<<24, p, r.SrcTP, heads, stage, r.SrcPP, 8)
						m, err := NewMapping(r.Share(src, p, d), dst)
						if err != nil {
							t.Fatalf("%s: %v", what, err)
						}
						writers = append(writers, m)
						var planner Planner
						plan, err := planner.Plan(m, srcIDs, dstIDs, tokens)
						if err != nil {
							t.Fatalf("%s: %v", what, err)
						}
						execute(plan.Append(nil), fill(src, srcIDs), memory)
						for _, c := range plan.Append(nil) {
							for b := range c.Len {
								written[c.Dst-1<<30+b]++
							}
						}
					}
				}
				if err := CheckComplete(dst, writers...); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				if n := slices.Max(written); n != 1 {
					t.Errorf("%s: a byte of consumer %d is written %d times", what, d, n)
				}
				if !bytes.Equal(memory.bytes, fill(dst, dstIDs).bytes) {
					t.Errorf("%s: consumer %d does not have what it should", what, d)
				}
			}
		}
	}
}

// fill writes a hybrid cache by coordinates: tokens 0 to 39, and state 0.
func fill(c Cache, ids [][]uint32) *memory {
	m := newMemory(c[0].Base&^(1<<20-1), 4<<16)
	for i := range c {
		r := &c[i]
		end := uint64(1)
		if r.Tokens > 0 {
			end = 40
		}
		for k := range r.Parts {
			p := &r.Parts[k]
			for head := p.Heads.First; head < p.Heads.First+p.Heads.N; head++ {
				for position := range end {
					at := coordinates{uint64(p.Layers.First), uint64(head), position, 0}
					content(m.at(address(r, p, ids[r.Group], 0, at), p.Size), p.Component, at)
				}
			}
		}
	}
	return m
}

func TestCheckComplete(t *testing.T) {
	r := Ranks{2, 1, 1}
	dst := hybrid(1<<30, 0, 1, 8, 0, 1, 16)
	mapping := func(p, stage, stages int) *Mapping {
		m, err := NewMapping(r.Share(hybrid(1<<24, p, 2, 8, stage, stages, 16), p, 0), dst)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, c := range []struct {
		writers []*Mapping
		want    string
	}{
		{[]*Mapping{mapping(0, 0, 1), mapping(1, 0, 1)}, ""},
		{[]*Mapping{mapping(1, 0, 1), mapping(0, 0, 2), mapping(0, 1, 2)}, ""},
		{[]*Mapping{mapping(0, 0, 1)}, "head 4 of layer 0 has no writer"},
		{[]*Mapping{mapping(1, 0, 1)}, "head 0 of layer 0 has no writer"},
		{[]*Mapping{mapping(0, 0, 1), mapping(1, 0, 2)}, "head 4 of layer 2 has no writer"},
		{[]*Mapping{mapping(0, 0, 1), mapping(1, 0, 1), mapping(1, 1, 2)}, "head 4 of layer 2 has more than one writer"},
		{nil, "head 0 of layer 0 has no writer"},
	} {
		err := CheckComplete(dst, c.writers...)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
