package blocks

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// bare is what a peer tells of a region without saying what is in it.
func bare(r Region) Region {
	r.Parts = nil
	return r
}

// TestReshaped compares with layouts that are laid out anew.
func TestReshaped(t *testing.T) {
	sizes := []model{
		{layers: 3, numBlocks: 32, tokens: 16, heads: Axis{N: 8}},
		{layers: 3, numBlocks: 20, tokens: 16, heads: Axis{First: 2, N: 2}},
		{layers: 3, numBlocks: 20, tokens: 32, heads: Axis{First: 4, N: 1}},
		{layers: 3, numBlocks: 7, tokens: 64, heads: Axis{First: 4, N: 4}},
	}
	for _, name := range []string{"LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"} {
		for _, apart := range []bool{false, true} {
			if apart && name == "LHBNC" {
				continue // heads outside of blocks, K and V inside: nothing lays it out like that
			}
			for _, from := range sizes {
				for _, to := range sizes {
					from.apart, to.apart = apart, apart
					what := fmt.Sprintf("%s, %v to %v", name, from, to)
					was, want := from.layout(name, 1<<20), to.layout(name, 1<<30)
					for i := range was {
						got, err := was[i].Reshaped(bare(want[i]), func(uint32) Axis { return to.heads })
						if err != nil {
							t.Errorf("%s: region %d: %v", what, i, err)
						} else if !reflect.DeepEqual(got, want[i]) {
							t.Errorf("%s: region %d is\n%v, want\n%v", what, i, got, want[i])
						}
						if got.BlockBytes() != uint64(to.tokens)*uint64(to.heads.N)*2*headBytes*uint64(to.layers)/uint64(len(was)) {
							t.Errorf("%s: %d bytes in a block", what, got.BlockBytes())
						}
					}
				}
			}
		}
	}
}

// TestReshapedState has a state of three parts one after another, of unequally many heads.
func TestReshapedState(t *testing.T) {
	for _, stage := range []struct{ from, to int }{{1, 2}, {2, 4}, {4, 1}} {
		was, want := hybrid(1<<20, 0, stage.from, 8, 0, 1, 16), hybrid(1<<30, stage.to-1, stage.to, 8, 0, 1, 16)
		for i := range was {
			got, err := was[i].Reshaped(bare(want[i]), func(of uint32) Axis { return Heads(stage.to-1, stage.to, int(of)) })
			if err != nil || !reflect.DeepEqual(got, want[i]) {
				t.Errorf("%d to %d ranks: region %d is\n%v, want\n%v, %v", stage.from, stage.to, i, got, want[i], err)
			}
		}
	}
}

// TestReshapedIgnoresAxesOfOne has a stride of one row and of one head, which say nothing, and
// blocks that are the rows of more layers there.
func TestReshapedIgnoresAxesOfOne(t *testing.T) {
	region := func(base, stride uint64, numBlocks uint32, heads Axis) Region {
		r := Region{Name: "layer", Base: base, Stride: stride, NumBlocks: numBlocks, PerID: 1, Tokens: 16}
		for i, component := range []string{"k", "v"} {
			r.Parts = append(r.Parts, Part{Component: component, Offset: uint64(i) * 8, Size: 8, RowStride: 2, Layers: One(0), Heads: heads, HeadsOf: 1, TokenStride: 16})
		}
		return r
	}
	was, to := region(1<<20, 768, 9, Axis{N: 1, Stride: 768}), region(1<<30, 1280, 7, Axis{N: 1})
	got, err := was.Reshaped(bare(to), func(uint32) Axis { return Axis{N: 1} })
	if err != nil || !reflect.DeepEqual(got, to) {
		t.Errorf("%v, %v, want %v", got, err, to)
	}
}

// transposed has all K of a head as a row for each of its numbers, then all V.
func transposed(base uint64, numBlocks, tokens uint32, heads Axis) Region {
	const numbers, bytes = 8, 4
	row := uint64(tokens) * bytes
	heads.Stride = 2 * numbers * row
	r := Region{Name: "layer", Base: base, Stride: uint64(heads.N) * heads.Stride, NumBlocks: numBlocks, PerID: 1, Tokens: tokens}
	r.Parts = []Part{
		{Component: "k", Size: bytes, Rows: numbers, RowStride: row,
			Layers: One(3), Heads: heads, HeadsOf: 8, TokenStride: bytes},
		{Component: "v", Offset: numbers * row, Size: numbers * bytes,
			Layers: One(3), Heads: heads, HeadsOf: 8, TokenStride: numbers * bytes},
	}
	return r
}

// TestReshapedHeadByHead has parts that lie within each other in a head.
func TestReshapedHeadByHead(t *testing.T) {
	was := transposed(1<<20, 9, 16, Axis{First: 4, N: 4})
	for _, heads := range []Axis{{First: 4, N: 4}, {First: 0, N: 8}, {First: 5, N: 1}} {
		want := transposed(1<<30, 7, 16, heads)
		got, err := was.Reshaped(bare(want), func(uint32) Axis { return heads })
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %v, %v, want %v", heads, got, err, want)
		}
	}
	for what, to := range map[string]Region{
		"other tokens": transposed(1<<30, 7, 32, Axis{N: 4}),
		"more room":    {Base: 1 << 30, Stride: was.Stride + 8, NumBlocks: 7, PerID: 1, Tokens: 16},
	} {
		if got, err := was.Reshaped(bare(to), func(uint32) Axis { return Axis{N: 4} }); err == nil {
			t.Errorf("%s: %v, want an error", what, got)
		}
	}
}

func TestReshapedRefuses(t *testing.T) {
	dense := model{layers: 2, numBlocks: 8, tokens: 16, heads: Axis{N: 4}}.layout("LBHNC", 1<<20)[0]
	apart := model{layers: 2, numBlocks: 8, tokens: 16, heads: Axis{N: 4}, apart: true}.layout("LBHNC", 1<<20)[0]
	for _, c := range []struct {
		name, want string
		change     func(was, to *Region)
		heads      uint32
	}{
		{"no stride of one head", "order of its axes", func(was, to *Region) {
			for i := range was.Parts {
				was.Parts[i].Heads.N, was.Parts[i].Heads.Stride = 1, 0
			}
		}, 2},
		{"gap between heads", "gaps", func(was, to *Region) {
			for i := range was.Parts {
				was.Parts[i].Heads.Stride += 8
			}
			was.Stride += 64
			to.Tokens, to.Stride = 32, 1<<20
		}, 4},
		{"gap that another worker may fill otherwise", "gaps", func(was, to *Region) {
			for i := range was.Parts {
				was.Parts[i].Heads.Stride *= 2
			}
			was.Stride *= 2
			to.Stride *= 4
		}, 4},
		{"gap between components", "does not follow", func(was, to *Region) {
			was.Parts = append([]Part(nil), apart.Parts...)
			was.Parts[1].Offset += 64
			was.Stride, to.Stride = 2048, 2048
		}, 2},
		{"no room", "more than the", func(was, to *Region) { to.Stride-- }, 4},
		{"absurd tokens", "do not fit", func(was, to *Region) { to.Tokens = 1 << 31; to.Stride = 1 << 40 }, 1 << 31},
	} {
		was, to := dense, bare(dense)
		was.Parts = append([]Part(nil), was.Parts...)
		c.change(&was, &to)
		_, err := was.Reshaped(to, func(uint32) Axis { return Axis{N: c.heads} })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestBlockBytesDoNotWrapAround(t *testing.T) {
	r := Region{Tokens: 1 << 20, Parts: []Part{{Size: 1 << 20, Layers: Axis{N: 1 << 20}, Heads: Axis{N: 1 << 20}, TokenStride: 1}}}
	if n := r.BlockBytes(); n != math.MaxUint64 {
		t.Errorf("%d bytes", n)
	}
}

func TestCheckRank(t *testing.T) {
	c := hybrid(1<<20, 1, 4, 8, 0, 1, 16)
	if err := c.CheckRank(1, 4); err != nil {
		t.Error(err)
	}
	for _, at := range [][2]int{{0, 4}, {1, 2}, {0, 3}} {
		if err := c.CheckRank(at[0], at[1]); err == nil {
			t.Errorf("rank 1 of 4 passes for %d of %d", at[0], at[1])
		}
	}
}

// TestWanted has each producer of a stage cover what is wanted of it, and nothing less will do.
func TestWanted(t *testing.T) {
	for _, r := range []Ranks{{1, 1, 1}, {4, 1, 2}, {8, 1, 2}, {1, 1, 4}, {2, 1, 8}, {2, 2, 1}} {
		for d := range r.DstTP {
			dst := hybrid(1<<40, d, r.DstTP, 4, 0, 1, 16)
			for _, p := range r.Producers(d) {
				for stage := range r.SrcPP {
					src := hybrid(1<<20, p, r.SrcTP, 4, stage, r.SrcPP, 16)
					share, wanted := r.Share(src, p, d), r.Wanted(dst, p, d, src.Layers())
					m, err := NewMapping(share, dst)
					if err != nil {
						t.Fatal(err)
					}
					if err := CheckComplete(wanted, m); err != nil {
						t.Errorf("%+v, stage %d, %d to %d: %v", r, stage, p, d, err)
					}
					if len(share) == 0 {
						continue
					}
					lacking, err := NewMapping(share[1:], dst)
					if err != nil {
						t.Fatal(err)
					}
					if CheckComplete(wanted, lacking) == nil {
						t.Errorf("%+v, stage %d, %d to %d: nobody misses a layer", r, stage, p, d)
					}
				}
			}
		}
	}
}

// TestLayers has a stage of a few layers and a drafter's, which is numbered behind the model's.
func TestLayers(t *testing.T) {
	part := func(first, n uint32) Part {
		return Part{Layers: Axis{First: first, N: n, Stride: 64}}
	}
	c := Cache{{Parts: []Part{part(8, 2), part(40, 1)}}, {Parts: []Part{part(6, 2), part(8, 1), part(9, 2)}}}
	if got, want := c.Layers(), []Axis{{First: 6, N: 5}, {First: 40, N: 1}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// FuzzReshaped has a peer tell any sizes. What comes out of it is refused, or has room for
// the elements of each block.
func FuzzReshaped(f *testing.F) {
	f.Add(uint8(0), false, uint64(1<<30), uint64(1024), uint32(8), uint32(32), uint32(2))
	f.Add(uint8(4), true, uint64(1<<30), uint64(1<<40), uint32(1<<31), uint32(1<<24), uint32(1<<31))
	names := []string{"LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"}
	f.Fuzz(func(t *testing.T, name uint8, apart bool, base, stride uint64, numBlocks, tokens, heads uint32) {
		for _, was := range (model{layers: 2, numBlocks: 8, tokens: 16, heads: Axis{N: 4}, apart: apart}).layout(names[int(name)%len(names)], 1<<20) {
			to := was
			to.Base, to.Stride, to.NumBlocks, to.Tokens = base, stride, numBlocks, tokens
			is, err := was.Reshaped(to, func(uint32) Axis { return Axis{N: heads} })
			if err != nil || (Cache{is}).Check() != nil {
				continue
			}
			if n := is.BlockBytes(); name%6 != 2 && n > stride {
				t.Errorf("%d bytes in a block, %d from block to block: %v", n, stride, is)
			}
		}
	})
}
