package blocks

import (
	"errors"
	"testing"
)

func TestAlign(t *testing.T) {
	const n = -1 // not known
	type lists struct{ src, dst, tokens int }
	for _, c := range []struct {
		name     string
		src, dst int // tokens per block id
		window   int
		lists    lists
		want     span // in tokens
	}{
		{"full", 16, 16, 0, lists{4, 4, n}, span{0, 0, 64}},
		{"suffix", 16, 16, 0, lists{4, 1, n}, span{48, 0, 16}},
		{"all cached", 16, 16, 0, lists{4, 0, n}, span{}},
		{"empty", 16, 16, 0, lists{0, 0, n}, span{}},
		{"tokens known", 16, 16, 0, lists{4, 2, 50}, span{32, 0, 32}},
		// The consumer's blocks are multiples of the producer's: its end is known.
		{"16 to 64", 16, 64, 0, lists{5, 2, n}, span{0, 0, 80}},
		{"16 to 64, suffix", 16, 64, 0, lists{5, 1, n}, span{64, 0, 16}},
		{"16 to 64, exact end", 16, 64, 0, lists{8, 1, n}, span{64, 0, 64}},
		{"16 to 64, tokens known", 16, 64, 0, lists{5, 1, 65}, span{64, 0, 16}},
		// The producer's blocks are the larger.
		{"64 to 16, full to the last", 64, 16, 0, lists{2, 8, n}, span{0, 0, 128}},
		{"64 to 16, ragged", 64, 16, 0, lists{2, 5, 80}, span{0, 0, 80}},
		{"64 to 16, ragged suffix", 64, 16, 0, lists{2, 1, 80}, span{64, 0, 16}},
		{"64 to 16, suffix inside a block", 64, 16, 0, lists{2, 2, 112}, span{80, 0, 32}},
		// Neither is a multiple.
		{"16 to 24, clear", 16, 24, 0, lists{3, 1, n}, span{24, 0, 24}},
		{"24 to 16", 24, 16, 0, lists{3, 2, 49}, span{32, 0, 32}},
		{"16 to 24", 16, 24, 0, lists{4, 2, 49}, span{24, 0, 40}},
		// Windows: both lists lack their beginnings.
		{"window", 16, 16, 32, lists{3, 3, n}, span{0, 0, 48}},
		{"window, 16 to 64", 16, 64, 32, lists{3, 2, 1000}, span{0, 64, 48}}, // from 960 and from 896 on
		{"window, 64 to 16", 64, 16, 32, lists{2, 3, 1000}, span{64, 0, 48}}, // from 896 and from 960 on
	} {
		w := walk{src: uint64(c.src), dst: uint64(c.dst), unit: gcd(uint64(c.src), uint64(c.dst))}
		got, err := w.align(uint64(c.lists.src), uint64(c.lists.dst), uint64(max(c.lists.tokens, 0)), uint64(c.window))
		if got = (span{got.src * w.unit, got.dst * w.unit, got.n * w.unit}); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
}

func TestAlignStates(t *testing.T) {
	w := walk{src: 2, dst: 2, unit: 1, state: true}
	for _, c := range []struct {
		src, dst uint64
		want     span
	}{{1, 1, span{0, 0, 2}}, {2, 1, span{2, 0, 2}}, {1, 2, span{0, 0, 2}}, {1, 0, span{}}, {2, 2, span{0, 0, 4}}} {
		if got, err := w.align(c.src, c.dst, 1000, 0); err != nil || got != c.want {
			t.Errorf("%d to %d states: %+v, %v, want %+v", c.src, c.dst, got, err, c.want)
		}
	}
	if _, err := w.align(1, 3, 0, 0); err == nil {
		t.Error("one state fills three")
	}
}

func TestAlignRefuses(t *testing.T) {
	for _, c := range []struct {
		name                   string
		src, dst, window       uint64
		srcIDs, dstIDs, tokens uint64
		ambiguous              bool
	}{
		{"more than there is", 16, 16, 0, 1, 2, 0, false},
		{"more than there is, unequal", 16, 64, 0, 4, 2, 0, false},
		{"from nothing", 16, 64, 0, 0, 1, 0, false},
		{"from nothing, equal", 16, 16, 0, 0, 1, 0, false},
		{"source longer than the request", 16, 16, 0, 5, 1, 64, false},
		{"destination longer than the request", 16, 64, 0, 4, 2, 64, false},
		{"source lacks the beginning", 16, 64, 0, 4, 2, 128, false},
		{"source lacks the window", 16, 16, 40, 2, 4, 1000, false},
		{"tokens beyond counting", 16, 16, 0, 1, 1, maxTokens + 1, false},
		// 65 to 128 tokens: the last block of 16 is the fifth to eighth.
		{"64 to 16, full or suffix", 64, 16, 0, 2, 5, 0, true},
		{"64 to 16, suffix", 64, 16, 0, 2, 1, 0, true},
		{"24 to 16", 24, 16, 0, 3, 2, 0, true},
		{"16 to 24", 16, 24, 0, 2, 1, 0, true},
		{"window, unequal", 16, 64, 40, 4, 1, 0, true},
	} {
		w := walk{src: c.src, dst: c.dst, unit: gcd(c.src, c.dst)}
		got, err := w.align(c.srcIDs, c.dstIDs, c.tokens, c.window)
		if err == nil || errors.Is(err, ErrTokens) != c.ambiguous {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}
