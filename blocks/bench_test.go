package blocks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// layered is a cache as vLLM lays it out (LBHNC): a region per layer, in each block head
// after head, K and V packed. The heads from first to before end of 8 are here.
func layered(base uint64, layers, numBlocks, tokens int, first, end uint32, gap uint64) Cache {
	const element = 256 // K and V of one head and token, each half of it
	n := end - first
	block := uint64(n) * uint64(tokens) * element
	var c Cache
	for l := range layers {
		r := Region{Name: fmt.Sprintf("layers.%d", l), Base: base + uint64(l)*(uint64(numBlocks)*block+gap), Stride: block,
			NumBlocks: uint32(numBlocks), PerID: 1, Tokens: uint32(tokens)}
		for i, name := range []string{"k", "v"} {
			r.Parts = append(r.Parts, Part{Component: name, Offset: uint64(i) * element / 2, Size: element / 2, Layers: One(uint32(l)),
				Heads: Axis{first, n, uint64(tokens) * element}, HeadsOf: 8, TokenStride: element})
		}
		c = append(c, r)
	}
	return c
}

func seq(from, n, step int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(from + i*step)
	}
	return ids
}

// scattered draws n ids below limit in runs of so many blocks.
func scattered(rng *rand.Rand, n, limit, run int) []uint32 {
	ids := make([]uint32, 0, n)
	for _, at := range rng.Perm(limit / run)[:n/run] {
		ids = append(ids, seq(at*run, run, 1)...)
	}
	return ids
}

// BenchmarkPlan plans requests of 64 layers. "copies" is how many the plan has.
func BenchmarkPlan(b *testing.B) {
	const layers, gap = 64, 4096
	rng := rand.New(rand.NewPCG(1, 2))
	whole := func(base uint64, numBlocks, tokens int) Cache {
		return layered(base, layers, numBlocks, tokens, 0, 8, gap)
	}
	src, dst := whole(1<<40, 8192, 16), whole(1<<44, 8192, 16)
	half := slices.Concat(seq(1, 512, 1), scattered(rng, 512, 4096, 1))
	for i := range half[512:] {
		half[512+i] += 2048
	}
	for _, c := range []struct {
		name           string
		src, dst       Cache
		srcIDs, dstIDs []uint32
		tokens         uint64
	}{
		{"contiguous-1024", src, dst, seq(1, 1024, 1), seq(5, 1024, 1), 0},
		{"descending-1024", src, dst, seq(1500, 1024, -1), seq(3000, 1024, -1), 0},
		{"half-fragmented-1024", src, dst, half, seq(9, 1024, 1), 0},
		{"runs-of-2-1024", src, dst, scattered(rng, 1024, 8192, 2), scattered(rng, 1024, 8192, 2), 0},
		{"fragmented-1024", src, dst, scattered(rng, 1024, 8192, 1), scattered(rng, 1024, 8192, 1), 0},
		{"fragmented-2048", src, dst, scattered(rng, 2048, 8192, 1), scattered(rng, 2048, 8192, 1), 0},
		{"heads-2-of-8-from-4-1024", layered(1<<40, layers, 8192, 16, 0, 4, gap), layered(1<<44, layers, 8192, 16, 2, 8, gap),
			seq(1, 1024, 1), seq(5, 1024, 1), 0},
		{"blocks-16-to-64-1024", src, whole(1<<44, 2048, 64), seq(1, 1024, 1), seq(5, 256, 1), 1024 * 16},
		{"blocks-64-to-16-1024", whole(1<<40, 2048, 64), dst, seq(1, 256, 1), seq(5, 1024, 1), 1024 * 16},
		{"million-tokens-contiguous", whole(1<<40, 70000, 16), whole(1<<44, 70000, 16), seq(1, 1<<16, 1), seq(3, 1<<16, 1), 0},
		{"million-tokens-fragmented", whole(1<<40, 70000, 16), whole(1<<44, 70000, 16),
			scattered(rng, 1<<16, 70000, 1), scattered(rng, 1<<16, 70000, 1), 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			m, err := NewMapping(c.src, c.dst)
			if err != nil {
				b.Fatal(err)
			}
			var p Planner
			var plan Plan
			srcIDs, dstIDs := [][]uint32{c.srcIDs}, [][]uint32{c.dstIDs}
			if _, err := p.Plan(m, srcIDs, dstIDs, c.tokens); err != nil { // makes the buffers
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if plan, err = p.Plan(m, srcIDs, dstIDs, c.tokens); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(plan.Copies), "copies")
		})
	}
}

// BenchmarkPlanOfSharedPages has attention and states in the same 16 tensors, as hybrid
// models have: blocks of one may adjoin blocks of the other, so all copies are sorted.
func BenchmarkPlanOfSharedPages(b *testing.B) {
	const kernelBlocks, pages = 4, 2048
	cache := func(base uint64) Cache {
		c := layered(base, 16, kernelBlocks*pages, 16, 0, 8, 4096)
		for i := range 16 {
			c[i].PerID = kernelBlocks
			state := c[i]
			state.Group, state.PerID, state.Tokens, state.NumBlocks, state.Stride = 1, 1, 0, pages, kernelBlocks*state.Stride
			state.Parts = []Part{{Component: "temporal", Size: 100000, Layers: One(uint32(100 + i)), Heads: One(0), HeadsOf: 1}}
			c = append(c, state)
		}
		return c
	}
	m, err := NewMapping(cache(1<<40), cache(1<<44))
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	src, dst := scattered(rng, 1025, pages, 1), scattered(rng, 1025, pages, 1)
	var p Planner
	var plan Plan
	b.ReportAllocs()
	for b.Loop() {
		if plan, err = p.Plan(m, [][]uint32{src[1:], src[:1]}, [][]uint32{dst[1:], dst[:1]}, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(plan.Copies), "copies")
}

// BenchmarkNewMapping makes the mapping of 64 layers, once per pair of ranks.
func BenchmarkNewMapping(b *testing.B) {
	src := layered(1<<40, 64, 8192, 16, 0, 8, 0)
	for name, dst := range map[string]Cache{
		"alike":    layered(1<<44, 64, 8192, 16, 0, 8, 0),
		"16-to-64": layered(1<<44, 64, 2048, 64, 0, 8, 0),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := NewMapping(src, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
