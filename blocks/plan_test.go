package blocks

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// dense makes layers of blocks that abut, one layer after another from base on.
func dense(base uint64, layers, numBlocks int, blockLen, gap uint64) Side {
	s := Side{PerLogical: 1}
	for l := range layers {
		at := base + uint64(l)*(uint64(numBlocks)*blockLen+gap)
		s.Regions = append(s.Regions, Region{Base: at, Len: blockLen, Stride: blockLen, NumBlocks: uint32(numBlocks)})
	}
	return s
}

func seq(from, n, step int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(from + i*step)
	}
	return ids
}

func TestPlanMergesRuns(t *testing.T) {
	src, dst := dense(1<<20, 3, 300, 64, 4096), dense(1<<30, 3, 400, 64, 8192)
	for _, c := range []struct {
		name     string
		src, dst []uint32
		want     int // copies per region
	}{
		{"ascending", seq(0, 256, 1), seq(10, 256, 1), 1},
		{"descending", seq(255, 256, -1), seq(300, 256, -1), 1},
		{"opposite", seq(0, 256, 1), seq(300, 256, -1), 256},
		{"two runs", slices.Concat(seq(100, 50, 1), seq(0, 50, 1)), slices.Concat(seq(200, 50, 1), seq(0, 50, 1)), 2},
		{"one", seq(7, 1, 1), seq(0, 1, 1), 1},
		{"none", nil, nil, 0},
	} {
		var p Planner
		copies, pairs, err := p.Plan(src, dst, [][]uint32{c.src}, [][]uint32{c.dst})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if len(copies) != 3*c.want || pairs != uint64(3*len(c.src)) {
			t.Errorf("%s: %d copies of %d pairs, want %d of %d", c.name, len(copies), pairs, 3*c.want, 3*len(c.src))
		}
	}
}

// TestPlanCopiesTheRightBytes compares with a walk over every block of random plans.
func TestPlanCopiesTheRightBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		per := uint32(1 + rng.IntN(3))
		layers, n := 1+rng.IntN(3), 1+rng.IntN(20)
		blockLen := uint64(8)
		src := dense(1<<20, layers, 64*int(per), blockLen, uint64(rng.IntN(2)*32))
		dst := dense(1<<30, layers, 64*int(per), blockLen, uint64(rng.IntN(2)*32))
		src.PerLogical, dst.PerLogical = per, per
		if rng.IntN(2) == 0 {
			for r := range dst.Regions {
				dst.Regions[r].Stride += 8
				dst.Regions[r].Base = 1<<30 + uint64(r)<<20
			}
		}
		s, d := rng.Perm(64)[:n], rng.Perm(64)[:n]
		if rng.IntN(2) == 0 {
			slices.Sort(s)
			slices.Sort(d)
		}
		srcIDs, dstIDs := make([]uint32, n), make([]uint32, n)
		want := map[uint64]uint64{} // destination byte -> source byte
		for i := range n {
			srcIDs[i], dstIDs[i] = uint32(s[i]), uint32(d[i])
			for r := range src.Regions {
				for k := range uint64(per) {
					for b := range blockLen {
						from := src.Regions[r].Base + (uint64(s[i])*uint64(per)+k)*src.Regions[r].Stride + b
						to := dst.Regions[r].Base + (uint64(d[i])*uint64(per)+k)*dst.Regions[r].Stride + b
						want[to] = from
					}
				}
			}
		}
		var p Planner
		copies, _, err := p.Plan(src, dst, [][]uint32{srcIDs}, [][]uint32{dstIDs})
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for i, c := range copies {
			for b := range c.Len {
				if want[c.Dst+b] != c.Src+b {
					t.Fatalf("byte at %#x comes from %#x, want %#x", c.Dst+b, c.Src+b, want[c.Dst+b])
				}
				got++
			}
			if i > 0 && copies[i-1].Src+copies[i-1].Len == c.Src && copies[i-1].Dst+copies[i-1].Len == c.Dst {
				t.Fatalf("copies %d and %d can be joined", i-1, i)
			}
		}
		if got != len(want) {
			t.Fatalf("%d bytes copied, want %d", got, len(want))
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	src, dst := dense(1<<20, 2, 10, 64, 0), dense(1<<30, 2, 5, 64, 0)
	other := dense(1<<30, 2, 5, 32, 0)
	one := [][]uint32{{1}}
	for name, f := range map[string]func(*Planner) error{
		"source id":      func(p *Planner) error { _, _, err := p.Plan(src, dst, [][]uint32{{10}}, one); return err },
		"destination id": func(p *Planner) error { _, _, err := p.Plan(src, dst, one, [][]uint32{{5}}); return err },
		"huge id":        func(p *Planner) error { _, _, err := p.Plan(src, dst, one, [][]uint32{{1<<32 - 1}}); return err },
		"lengths":        func(p *Planner) error { _, _, err := p.Plan(src, dst, one, [][]uint32{{1, 2}}); return err },
		"groups":         func(p *Planner) error { _, _, err := p.Plan(src, dst, one, nil); return err },
		"no groups":      func(p *Planner) error { _, _, err := p.Plan(src, dst, nil, nil); return err },
		"block lengths":  func(p *Planner) error { _, _, err := p.Plan(src, other, one, one); return err },
	} {
		if err := f(new(Planner)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPlanDoesNotAllocateWhenWarm(t *testing.T) {
	src, dst := dense(1<<20, 64, 2048, 64, 4096), dense(1<<30, 64, 2048, 64, 4096)
	ids := [][]uint32{seq(1500, 1024, -1)}
	var p Planner
	plan := func() {
		if _, _, err := p.Plan(src, dst, ids, ids); err != nil {
			t.Fatal(err)
		}
	}
	plan()
	if n := testing.AllocsPerRun(10, plan); n != 0 {
		t.Errorf("%v allocations per plan", n)
	}
}

func TestTrimToSuffix(t *testing.T) {
	got, err := TrimToSuffix([][]uint32{{1, 2, 3}, {4, 5}}, [][]uint32{{9}, {}})
	if err != nil || !slices.Equal(got[0], []uint32{3}) || len(got[1]) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := TrimToSuffix([][]uint32{{1}}, [][]uint32{{1, 2}}); err == nil {
		t.Error("a consumer may not ask for more than there is")
	}
	if _, err := TrimToSuffix([][]uint32{{1}}, nil); err == nil {
		t.Error("groups must agree")
	}
}

func BenchmarkPlan(b *testing.B) {
	src, dst := dense(1<<20, 64, 4096, 64, 4096), dense(1<<30, 64, 4096, 64, 4096)
	rng := rand.New(rand.NewPCG(1, 2))
	scattered := func() []uint32 {
		ids := make([]uint32, 1024)
		for i, id := range rng.Perm(4096)[:1024] {
			ids[i] = uint32(id)
		}
		return ids
	}
	for _, c := range []struct {
		name     string
		src, dst []uint32
	}{
		{"contiguous", seq(0, 1024, 1), seq(0, 1024, 1)},
		{"descending", seq(1500, 1024, -1), seq(3000, 1024, -1)},
		{"scattered", scattered(), scattered()},
	} {
		b.Run(c.name, func(b *testing.B) {
			var p Planner
			for b.Loop() {
				if _, _, err := p.Plan(src, dst, [][]uint32{c.src}, [][]uint32{c.dst}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(p.copies)), "copies")
		})
	}
}
