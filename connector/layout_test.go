package connector

import (
	"errors"
	"math"
	"testing"

	"github.com/nixlpush/nixlpush/blocks"
)

// part changes a part that is in order, and its region, before the layout is completed.
func part(change func(*Region, *blocks.Part)) func(*Layout) {
	return func(l *Layout) {
		r := &l.Regions[1]
		r.Parts = []blocks.Part{{Component: "k", Size: 8, Layers: blocks.One(1), Heads: blocks.Axis{N: 2, Stride: 128}, HeadsOf: 2, TokenStride: 8}}
		change(r, &r.Parts[0])
	}
}

func TestLayoutRefuses(t *testing.T) {
	for name, change := range map[string]func(*Layout){
		"no regions":        func(l *Layout) { l.Regions = nil },
		"no tokens":         func(l *Layout) { l.BlockSize = 0 },
		"no blocks":         func(l *Layout) { l.NumBlocks = 0 },
		"empty region":      func(l *Layout) { l.Regions[1].NumBlocks = 0 },
		"no bytes":          func(l *Layout) { l.Regions[1].BlockLen = 0 },
		"short stride":      func(l *Layout) { l.Regions[1].Stride = testBlock - 1 },
		"group":             func(l *Layout) { l.Regions[1].Group = -2 },
		"kind of memory":    func(l *Layout) { l.Regions[1].Mem = 1 },
		"odd blocks":        func(l *Layout) { l.PhysicalPerLogical = 3 },
		"outside":           func(l *Layout) { l.Regions[2].Base += 1 << 20 },
		"below":             func(l *Layout) { l.Regions[0].Base-- },
		"one block too far": func(l *Layout) { l.Regions[2].NumBlocks += 64 },
		"stride too far":    func(l *Layout) { l.Regions[2].Stride = math.MaxUint64 / 2 },
		"memory of nothing": func(l *Layout) { l.Memory[0].Len = 0 },
		"memory at 0":       func(l *Layout) { l.Memory[0].Addr = 0 },
		"part of nothing":   part(func(r *Region, p *blocks.Part) { p.Size = 0 }),
		"part too long":     part(func(r *Region, p *blocks.Part) { p.Size = 3 * r.BlockLen; r.Stride *= 4; r.NumBlocks /= 8 }),
		"part outside":      part(func(r *Region, p *blocks.Part) { p.Offset = 1 << 30 }),
		"reserved name":     part(func(r *Region, p *blocks.Part) { p.Component = wholeBlock }),
		"other rank's head": part(func(r *Region, p *blocks.Part) { p.Heads.First = 1 }),
		"tokens overlap":    part(func(r *Region, p *blocks.Part) { p.TokenStride = 4 }),
		"two windows":       func(l *Layout) { l.Regions[1].Window = 3 },
		"negative window":   func(l *Layout) { l.Regions[1].Window = -3 },
		"negative tokens":   func(l *Layout) { l.Regions[1].Tokens = -2 },
		"negative per id":   func(l *Layout) { l.Regions[1].PerID = -2 },
		"odd per id":        func(l *Layout) { l.Regions[1].PerID = 3 },
		"memory wraps":      func(l *Layout) { l.Memory[0].Len = math.MaxUint64 },
	} {
		l := newTestCache(0, 0).layout()
		change(&l)
		if err := l.complete(0, 1); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*Layout){
		"as it is":           func(l *Layout) {},
		"parts":              part(func(*Region, *blocks.Part) {}),
		"heads about blocks": part(func(r *Region, p *blocks.Part) { r.Stride, r.NumBlocks, p.Heads.Stride = 128, 64, 128*64 }),
	} {
		l := newTestCache(0, 0).layout()
		given := &l.Regions[0]
		change(&l)
		if err := l.complete(0, 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if given.Tokens != 0 || l.Regions[0].Tokens != 16 || l.Regions[0].PerID != 1 {
			t.Errorf("%s: given %+v, completed %+v", name, given, l.Regions[0])
		}
	}
}
