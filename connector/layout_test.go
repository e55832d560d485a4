package connector

import (
	"errors"
	"math"
	"testing"
)

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
		"memory wraps":      func(l *Layout) { l.Memory[0].Len = math.MaxUint64 },
	} {
		l := newTestCache(0, 0).layout()
		change(&l)
		if err := l.complete(0, 1); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l := newTestCache(0, 0).layout()
	if err := l.complete(0, 1); err != nil {
		t.Error(err)
	}
}
