package blocks

import (
	"math"
	"strings"
	"testing"
)

func TestPlanRefuses(t *testing.T) {
	m, err := NewMapping(layered(1<<20, 2, 10, 16, 0, 8, 0), layered(1<<40, 2, 5, 16, 0, 8, 0))
	if err != nil {
		t.Fatal(err)
	}
	one := [][]uint32{{1}}
	for _, c := range []struct {
		name     string
		src, dst [][]uint32
		want     string
	}{
		{"source id", [][]uint32{{10}}, one, "group 0: source block id 10 is out of range: the cache has 10 blocks"},
		{"source id that need not move", [][]uint32{{10, 1}}, one, "source block id 10"},
		{"destination id", one, [][]uint32{{5}}, "destination block id 5 is out of range: the cache has 5 blocks"},
		{"huge id", [][]uint32{{math.MaxUint32}}, one, "source block id 4294967295"},
		{"lengths", one, [][]uint32{{1, 2}}, "group 0: 2 destination blocks of 16 tokens need more than the 1 source blocks"},
		{"groups", one, nil, "1 source and 0 destination groups"},
		{"no groups", nil, nil, "the caches have 1"},
		{"too many groups", make([][]uint32, MaxGroups+1), make([][]uint32, MaxGroups+1), "65 source"},
	} {
		plan, err := new(Planner).Plan(m, c.src, c.dst, 0)
		if err == nil || !strings.Contains(err.Error(), c.want) || plan.Copies > 0 {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestPlannerRecovers plans after an error with the same Planner.
func TestPlannerRecovers(t *testing.T) {
	m, err := NewMapping(layered(1<<20, 2, 10, 16, 0, 8, 64), layered(1<<40, 2, 10, 16, 0, 8, 64))
	if err != nil {
		t.Fatal(err)
	}
	var p Planner
	for range 2 {
		if plan, err := p.Plan(m, [][]uint32{{1, 1, 2}}, [][]uint32{{3, 4, 5}}, 0); err != nil || plan.Copies != 4 {
			t.Errorf("%+v, %v", plan, err)
		}
		if _, err := p.Plan(m, [][]uint32{{1}}, [][]uint32{{3, 4}}, 0); err == nil {
			t.Error("no error")
		}
		if plan, err := p.Plan(m, [][]uint32{{1, 2}}, [][]uint32{{3, 4}}, 0); err != nil || plan.Copies != 2 {
			t.Errorf("%+v, %v", plan, err)
		}
	}
}

func TestNewMappingRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(c Cache)
		want   string // the difference
	}{
		{"element", func(c Cache) { c[1].Parts[1].Size-- }, "v of layer 1, region 1 at the source and 1 at the destination: bytes of an element 128 and 127"},
		{"rows", func(c Cache) { c[1].Parts[1].Rows, c[1].Parts[1].RowStride = 2, 2048 }, "rows of an element 1 and 2"},
		{"heads", func(c Cache) { c[1].Parts[0].HeadsOf = 16 }, "k of layer 1, region 1 at the source and 1 at the destination: heads of the model 8 and 16"},
		{"groups", func(c Cache) { c[0].Group = 1 }, "groups 0 and 1"},
		{"window", func(c Cache) { c[0].Window, c[1].Window = 64, 64 }, "windows of 0 and 64"},
		{"state", func(c Cache) { c[0].Tokens, c[0].Parts[0].TokenStride, c[0].Parts[1].TokenStride = 0, 0, 0 }, "blocks of tokens and a state"},
		{"division", func(c Cache) { c[0].Parts[0].TokenStride = 0 }, "blocks are divided by token and whole"},
	} {
		src, dst := layered(1<<20, 2, 10, 16, 0, 8, 0), layered(1<<40, 2, 5, 16, 0, 8, 0)
		c.change(dst)
		_, err := NewMapping(src, dst)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, want := range []string{c.want, "source: " + src.String(), "destination: " + dst.String()} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", c.name, err, want)
			}
		}
	}
	whole := func(tokens, perID uint32) Cache {
		return Cache{{Stride: 64, NumBlocks: 8, PerID: perID, Tokens: tokens,
			Parts: []Part{{Component: "block", Size: 64, Layers: One(0), Heads: One(0), HeadsOf: 1}}}}
	}
	for _, c := range []struct {
		src, dst Cache
		want     string
	}{
		{whole(16, 1), whole(32, 1), "elements cannot be divided, tokens of a block 16 and 32"},
		{whole(0, 1), whole(0, 2), "blocks of a state 1 and 2"},
	} {
		if _, err := NewMapping(c.src, c.dst); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if _, err := NewMapping(whole(16, 1), whole(16, 2)); err != nil {
		t.Errorf("whole blocks, two to an id on one side: %v", err)
	}
}

// TestNewMappingLeavesOut has caches that share nothing, or little.
func TestNewMappingLeavesOut(t *testing.T) {
	src, dst := layered(1<<20, 2, 10, 16, 0, 4, 0), layered(1<<40, 2, 5, 16, 4, 8, 0)
	m, err := NewMapping(src, dst)
	if err != nil || len(m.Covers()) != 0 {
		t.Fatalf("caches of different heads share %v, %v", m.Covers(), err)
	}
	plan, err := new(Planner).Plan(m, [][]uint32{{1, 2}}, [][]uint32{{3}}, 0)
	if err != nil || plan.Copies != 0 {
		t.Errorf("%+v, %v", plan, err)
	}
	dst = layered(1<<40, 3, 5, 16, 2, 8, 0)
	dst[1].Parts = dst[1].Parts[1:]
	if m, err = NewMapping(src, dst); err != nil {
		t.Fatal(err)
	}
	heads := Axis{First: 2, N: 2}
	want := []Cover{{0, "k", One(0), heads}, {0, "v", One(0), heads}, {1, "v", One(1), heads}}
	if len(m.Covers()) != len(want) {
		t.Fatalf("%v, want %v", m.Covers(), want)
	}
	for i, c := range m.Covers() {
		if c != want[i] {
			t.Errorf("%v, want %v", c, want[i])
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *Region)
	}{
		{"no blocks", func(r *Region) { r.NumBlocks = 0 }},
		{"no blocks per id", func(r *Region) { r.PerID = 0 }},
		{"more per id than there are", func(r *Region) { r.PerID = 11 }},
		{"group below", func(r *Region) { r.Group = -2 }},
		{"group beyond", func(r *Region) { r.Group = MaxGroups }},
		{"another window than the group's", func(r *Region) { r.Window = 64 }},
		{"a window of any group", func(r *Region) { r.Group, r.Window = AnyGroup, 64 }},
		{"nothing in it", func(r *Region) { r.Parts = nil }},
		{"no name", func(r *Region) { r.Parts[0].Component = "" }},
		{"no bytes", func(r *Region) { r.Parts[0].Size = 0 }},
		{"no layer", func(r *Region) { r.Parts[0].Layers.N = 0 }},
		{"no head", func(r *Region) { r.Parts[0].Heads.N = 0 }},
		{"layers beyond counting", func(r *Region) { r.Parts[0].Layers.First = math.MaxUint32 }},
		{"heads on top of each other", func(r *Region) { r.Parts[0].Heads.Stride = 127 }},
		{"more heads than the model has", func(r *Region) { r.Parts[0].Heads.First = 1 }},
		{"tokens on top of each other", func(r *Region) { r.Parts[0].TokenStride = 127 }},
		{"rows on top of each other", func(r *Region) { r.Parts[0].Rows, r.Parts[0].RowStride = 2, 127 }},
		{"rows of the next block", func(r *Region) { r.Parts[0].Rows, r.Parts[0].RowStride = 2, 1<<15 }},
		{"rows that wrap around", func(r *Region) { r.Parts[0].Rows, r.Parts[0].RowStride = 1<<17+1, 1<<47 }},
		{"tokens of a state", func(r *Region) { r.Tokens = 0 }},
		{"tokens of the next block", func(r *Region) { r.Parts[0].TokenStride = 1 << 15 }},
		{"block on top of block", func(r *Region) { r.Stride = 0 }},
		{"element of several blocks", func(r *Region) { r.Parts[0].Size, r.Parts[0].TokenStride, r.Parts[0].Heads = 1<<20, 0, Axis{0, 1, 0} }},
		{"beyond memory", func(r *Region) { r.Base = math.MaxUint64 - 100 }},
		{"stride beyond memory", func(r *Region) { r.Stride = math.MaxUint64 / 3 }},
		{"stride that wraps around", func(r *Region) { r.Stride = 1 << 61 }},
		{"layers that wrap around", func(r *Region) { r.Parts[0].Layers = Axis{0, 1 << 31, 1 << 33} }},
		{"heads that wrap around", func(r *Region) { r.Parts[0].Heads.Stride = 1 << 62 }},
		{"offset that wraps around", func(r *Region) { r.Parts[0].Offset = math.MaxUint64 - 10 }},
		{"tokens that wrap around", func(r *Region) { r.Tokens, r.Parts[0].TokenStride = 1<<17+1, 1<<47 }},
	} {
		good, bad := layered(1<<20, 2, 10, 16, 0, 8, 0), layered(1<<40, 2, 10, 16, 0, 8, 0)
		if err := good.Check(); err != nil {
			t.Fatal(err)
		}
		c.change(&bad[1])
		if err := bad.Check(); err == nil || !strings.HasPrefix(err.Error(), "region 1 (layers.1): ") {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := NewMapping(good, bad); err == nil || !strings.HasPrefix(err.Error(), "destination: region 1") {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := NewMapping(bad, good); err == nil || !strings.HasPrefix(err.Error(), "source: region 1") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestNewMappingIsBounded has descriptions that pass but would take all memory.
func TestNewMappingIsBounded(t *testing.T) {
	src, dst := layered(1<<20, 1, 10, 16, 0, 8, 0), layered(1<<40, 1, 10, 16, 0, 8, 0)
	for _, c := range []Cache{src, dst} {
		for i := range c[0].Parts {
			c[0].Parts[i].Layers = Axis{0, 1 << 24, 1 << 20}
		}
	}
	if _, err := NewMapping(src, dst); err == nil || !strings.Contains(err.Error(), "pieces") {
		t.Errorf("16 million layers: %v", err)
	}
	for _, c := range []Cache{src, dst} {
		c[0].NumBlocks, c[0].Stride, c[0].Tokens = 1<<31, 1<<16, 64
		for i := range c[0].Parts {
			c[0].Parts[i].Layers = One(0)
		}
	}
	dst[0].Tokens = 3
	if _, err := NewMapping(src, dst); err == nil || !strings.Contains(err.Error(), "units of 1 tokens are too many") {
		t.Errorf("2 to the 37 units: %v", err)
	}
	src, dst = layered(1<<20, 1, 10, 16, 0, 8, 0), layered(1<<40, 1, 10, 16, 0, 8, 0)
	for range 300 {
		src[0].Parts, dst[0].Parts = append(src[0].Parts, src[0].Parts[0]), append(dst[0].Parts, dst[0].Parts[0])
	}
	if _, err := NewMapping(src, dst); err == nil || !strings.Contains(err.Error(), "pairs of parts") {
		t.Errorf("300 times the same part: %v", err)
	}
}

// TestPlanIsBounded has a request that would take gigabytes of copies.
func TestPlanIsBounded(t *testing.T) {
	src, dst := layered(1<<40, 64, 1<<16, 16, 0, 8, 0), layered(1<<44, 64, 1<<16, 16, 0, 8, 0)
	for i := range dst {
		for k := range dst[i].Parts {
			p := &dst[i].Parts[k]
			p.Heads.Stride, p.TokenStride = p.TokenStride, 8*p.TokenStride
		}
	}
	m, err := NewMapping(src, dst)
	if err != nil {
		t.Fatal(err)
	}
	ids := [][]uint32{seq(0, 1<<16, 1)}
	if _, err := new(Planner).Plan(m, ids, ids, 0); err == nil || !strings.Contains(err.Error(), "more than 67108864 pieces") {
		t.Error(err)
	}
}
