package blocks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// model is what the named layouts below lay out.
type model struct {
	layers, numBlocks, tokens int
	heads                     Axis // of 8
	apart                     bool // all K of a block before all V
}

const headBytes = 4 // of K, and of V, in a token

// layout makes a cache of the axes that name spells: L(ayers), B(locks), H(eads), N (tokens),
// from the outermost to the innermost, then C(ontent): K and V.
func (m model) layout(name string, base uint64) Cache {
	element := uint64(2 * headBytes)
	if m.apart {
		element = headBytes
	}
	stride := map[byte]uint64{}
	size := element
	for i := len(name) - 2; i >= 0; i-- {
		if stride[name[i]] = size; m.apart && name[i] == 'B' {
			size *= 2
			stride['B'] = size
		}
		size *= map[byte]uint64{'L': uint64(m.layers), 'B': uint64(m.numBlocks), 'H': uint64(m.heads.N), 'N': uint64(m.tokens)}[name[i]]
	}
	content := uint64(headBytes)
	if m.apart {
		content = stride['B'] / 2
	}
	region := func(base uint64, layers Axis) Region {
		r := Region{Name: name, Base: base, Stride: stride['B'], NumBlocks: uint32(m.numBlocks), PerID: 1, Tokens: uint32(m.tokens)}
		for i, c := range []string{"k", "v"} {
			r.Parts = append(r.Parts, Part{Component: c, Offset: uint64(i) * content, Size: headBytes, Layers: layers,
				Heads: Axis{m.heads.First, m.heads.N, stride['H']}, HeadsOf: 8, TokenStride: stride['N']})
		}
		return r
	}
	if strings.HasPrefix(name, "B") { // all layers in a block: one region
		return Cache{region(base, Axis{0, uint32(m.layers), stride['L']})}
	}
	var c Cache
	for l := range m.layers {
		c = append(c, region(base+uint64(l)*stride['L'], One(uint32(l))))
	}
	return c
}

// TestPlanOfNamedLayouts counts the copies of ten blocks between vLLM's layouts.
func TestPlanOfNamedLayouts(t *testing.T) {
	const layers, blocks, tokens, heads = 3, 10, 16, 8
	all := model{layers: layers, numBlocks: 32, tokens: tokens, heads: Axis{N: heads}}
	apart, big, quarter := all, all, all
	apart.apart = true
	big.tokens = 64
	quarter.heads = Axis{First: 2, N: 2}
	for _, c := range []struct {
		src, dst   string
		from, to   model
		run, alone int // copies if the blocks are in a run, and if none adjoin
	}{
		{"LBHNC", "LBHNC", all, all, layers, layers * blocks},
		{"LBNHC", "LBNHC", all, all, layers, layers * blocks},
		{"LHBNC", "LHBNC", all, all, layers * heads, layers * heads * blocks},
		{"BLHNC", "BLHNC", all, all, 1, blocks},
		{"BLNHC", "BLNHC", all, all, 1, blocks},
		{"BHLNC", "BHLNC", all, all, 1, blocks},
		{"LBHNC", "BLHNC", all, all, layers * blocks, layers * blocks},
		{"LBHNC", "LHBNC", all, all, layers * heads * blocks, layers * heads * blocks},
		// Elements of one head apart from token to token on one side: one copy for each.
		// (The last element of a block adjoins the first of the next on both sides.)
		{"LBHNC", "LBNHC", all, all, layers * (heads*tokens*blocks - (blocks - 1)), layers * heads * tokens * blocks},
		// K and V packed to apart: each K and each V.
		{"LBHNC", "LBHNC", all, apart, layers * (2*heads*tokens*blocks - (blocks - 1)), 2 * layers * heads * tokens * blocks},
		// K and V apart on both sides adjoin in a block.
		{"LBHNC", "LBHNC", apart, apart, layers, layers * blocks},
		// Two of the heads are a slice of each block, ...
		{"LBHNC", "LBHNC", quarter, all, layers * blocks, layers * blocks},
		{"LBHNC", "LBHNC", all, quarter, layers * blocks, layers * blocks},
		// ... a slice of each token, ...
		{"LBNHC", "LBNHC", all, quarter, layers * tokens * blocks, layers * tokens * blocks},
		// ... or whole heads.
		{"LHBNC", "LHBNC", all, quarter, layers * 2, layers * 2 * blocks},
		// Token by token a block's size does not matter.
		{"LBNHC", "LBNHC", all, big, layers, layers * blocks},
		{"LBNHC", "LBNHC", big, all, layers, layers * blocks},
		{"LBHNC", "LBHNC", all, big, layers * (heads*blocks - 2), layers * heads * blocks},
	} {
		what := fmt.Sprintf("%s to %s, %v to %v", c.src, c.dst, c.from, c.to)
		m, err := NewMapping(c.from.layout(c.src, 1<<20), c.to.layout(c.dst, 1<<30))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		ids := func(m model, step int) []uint32 {
			if m.tokens == 64 {
				return seq(3, 3, 1)
			}
			return seq(3, blocks, step)
		}
		// With blocks of 64 tokens in a run, and blocks of 16 two apart, the latter never adjoin.
		for _, list := range []struct{ step, want int }{{1, c.run}, {2, c.alone}} {
			srcIDs, dstIDs := ids(c.from, list.step), ids(c.to, list.step)
			var p Planner
			plan, err := p.Plan(m, [][]uint32{srcIDs}, [][]uint32{dstIDs}, blocks*tokens)
			if err != nil || plan.Copies != list.want {
				t.Errorf("%s, blocks %d apart: %d copies, want %d, %v", what, list.step, plan.Copies, list.want, err)
			}
			if bytes := uint64(layers * blocks * tokens * 2 * headBytes * min(c.from.heads.N, c.to.heads.N)); plan.Bytes != bytes {
				t.Errorf("%s: %d bytes, want %d", what, plan.Bytes, bytes)
			}
			checkMinimal(t, 0, plan.Append(nil))
		}
	}
}

// TestPlanMergesRuns is about lists of one group between caches of three layers.
func TestPlanMergesRuns(t *testing.T) {
	m, err := NewMapping(layered(1<<20, 3, 300, 16, 0, 8, 4096), layered(1<<40, 3, 400, 16, 0, 8, 8192))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		src, dst []uint32
		want     int // copies per layer
	}{
		{"ascending", seq(0, 256, 1), seq(10, 256, 1), 1},
		{"descending", seq(255, 256, -1), seq(300, 256, -1), 1},
		{"opposite", seq(0, 256, 1), seq(300, 256, -1), 256},
		{"two runs", slices.Concat(seq(100, 50, 1), seq(0, 50, 1)), slices.Concat(seq(200, 50, 1), seq(0, 50, 1)), 2},
		{"two halves of a run", slices.Concat(seq(50, 50, 1), seq(0, 50, 1)), slices.Concat(seq(150, 50, 1), seq(100, 50, 1)), 1},
		{"up and down", slices.Concat(seq(50, 50, 1), seq(49, 50, -1)), slices.Concat(seq(150, 50, 1), seq(149, 50, -1)), 1},
		{"source twice", []uint32{5, 5, 6}, []uint32{7, 9, 8}, 2}, // 5 and 6 to 7 and 8, and 5 to 9
		{"one", []uint32{7}, []uint32{0}, 1},
		{"none", nil, nil, 0},
	} {
		var p Planner
		plan, err := p.Plan(m, [][]uint32{c.src}, [][]uint32{c.dst}, 0)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if plan.Copies != 3*c.want || plan.Pieces != uint64(3*len(c.src)) {
			t.Errorf("%s: %d copies of %d pieces, want %d of %d", c.name, plan.Copies, plan.Pieces, 3*c.want, 3*len(c.src))
		}
		checkMinimal(t, 0, plan.Append(nil))
	}
}

// TestRuns looks at the runs before they are laid out: what they cost is paid once for all layers.
func TestRuns(t *testing.T) {
	bytes := seq(1<<24-500, 1000, 1) // numbers that differ in every byte
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(bytes), func(i, k int) { bytes[i], bytes[k] = bytes[k], bytes[i] })
	for _, c := range []struct {
		name           string
		src, dst       []uint32
		walked, sorted int
	}{
		{"descending", seq(255, 256, -1), seq(300, 256, -1), 1, 1},
		{"two halves", slices.Concat(seq(50, 50, 1), seq(0, 50, 1)), slices.Concat(seq(150, 50, 1), seq(100, 50, 1)), 2, 1},
		{"every other", seq(0, 50, 2), seq(0, 50, 2), 50, 50},
		{"shuffled bytes", bytes, bytes, 998, 1},
		{"shuffled", []uint32{4, 2, 0, 3, 1}, []uint32{14, 12, 10, 13, 11}, 5, 1},
	} {
		var p Planner
		p.addPieces(c.src, c.dst, span{n: uint64(len(c.src))}, 1, 1)
		walked := len(p.runs)
		if p.sortRuns(); walked != c.walked || len(p.runs) != c.sorted {
			t.Errorf("%s: %d runs, then %d, want %d, then %d", c.name, walked, len(p.runs), c.walked, c.sorted)
		}
	}
}

// TestPlanJoinsLayers has layers that adjoin on both sides: with all blocks, all is one copy.
func TestPlanJoinsLayers(t *testing.T) {
	m, err := NewMapping(layered(1<<20, 3, 50, 16, 0, 8, 0), layered(1<<40, 3, 50, 16, 0, 8, 0))
	if err != nil {
		t.Fatal(err)
	}
	var p Planner
	for _, c := range []struct {
		ids  []uint32
		want int
	}{{seq(0, 50, 1), 1}, {seq(49, 50, -1), 1}, {seq(1, 49, 1), 3}, {[]uint32{0, 25, 49}, 7}} {
		plan, err := p.Plan(m, [][]uint32{c.ids}, [][]uint32{c.ids}, 0)
		if err != nil || plan.Copies != c.want {
			t.Errorf("blocks %v: %d copies, want %d, %v", c.ids, plan.Copies, c.want, err)
		}
	}
}

// TestPlanJoinsGroups has two groups in the same memory: blocks of one adjoin blocks of the other.
func TestPlanJoinsGroups(t *testing.T) {
	shared := func(base uint64, any bool) Cache {
		c := layered(base, 1, 50, 16, 0, 8, 0)
		if any {
			c[0].Group = AnyGroup
			return c
		}
		c = append(c, layered(base, 2, 50, 16, 0, 8, 0)[0])
		c[1].Group, c[1].Window = 1, 64
		for i := range c[1].Parts {
			c[1].Parts = slices.Clone(c[1].Parts)
			c[1].Parts[i].Layers = One(9)
		}
		return c
	}
	for _, any := range []bool{false, true} {
		m, err := NewMapping(shared(1<<20, any), shared(1<<40, any))
		if err != nil {
			t.Fatal(err)
		}
		if len(m.walks) != 1 { // else blocks would be joined only after all have been laid out
			t.Errorf("any group %v: the groups are walked one by one", any)
		}
		var p Planner
		ids := [][]uint32{{3, 5, 7}, {4, 6}}
		plan, err := p.Plan(m, ids, ids, 0)
		if err != nil || plan.Copies != 1 || plan.Bytes != 5*16*8*256 {
			t.Errorf("any group %v: %+v, %v", any, plan, err)
		}
		if plan, err = p.Plan(m, ids, [][]uint32{{}, {6}}, 0); err != nil || plan.Copies != 1 {
			t.Errorf("a group with nothing to move: %+v, %v", plan, err)
		}
	}
}

func TestPlanDoesNotAllocateWhenWarm(t *testing.T) {
	src := layered(1<<40, 64, 2048, 16, 0, 8, 0)
	for name, dst := range map[string]Cache{"alike": layered(1<<44, 64, 2048, 16, 0, 8, 0), "16 to 64": layered(1<<44, 64, 512, 64, 0, 8, 0)} {
		m, err := NewMapping(src, dst)
		if err != nil {
			t.Fatal(err)
		}
		srcIDs := [][]uint32{seq(1500, 1024, -1)}
		dstIDs := [][]uint32{seq(100, 1024*16/int(dst[0].Tokens), 1)}
		var p Planner
		plan := func() {
			if _, err := p.Plan(m, srcIDs, dstIDs, 1024*16); err != nil {
				t.Fatal(err)
			}
		}
		plan()
		if n := testing.AllocsPerRun(10, plan); n != 0 {
			t.Errorf("%s: %v allocations per plan", name, n)
		}
	}
}

func TestPerMiB(t *testing.T) {
	m, err := NewMapping(layered(1<<40, 2, 64, 16, 0, 8, 64), layered(1<<44, 2, 64, 16, 0, 8, 64))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.PerMiB(); got != 32 { // blocks of 32 KiB
		t.Errorf("%v copies per MiB at worst, want 32", got)
	}
	var p Planner
	plan, err := p.Plan(m, [][]uint32{seq(0, 32, 1)}, [][]uint32{seq(0, 32, 1)}, 0)
	if err != nil || plan.PerMiB() != 1 {
		t.Errorf("%v copies per MiB in a run, want 1, %v", plan.PerMiB(), err)
	}
	if plan, err = p.Plan(m, [][]uint32{{}}, [][]uint32{{}}, 0); err != nil || plan.PerMiB() != 0 {
		t.Errorf("%v copies per MiB of nothing, %v", plan.PerMiB(), err)
	}
}
