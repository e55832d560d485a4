package blocks

import (
	"cmp"
	"fmt"
	"slices"
)

// Ranks says which ranks of a producer engine and of a consumer engine deal with each
// other, by the rule that vLLM counts by: with unequal tensor-parallel sizes, a rank of the
// smaller deals with as many neighbours of the larger as go into it. The ranks of every
// pipeline stage of the producer deal with the same consumer ranks; consumers have one stage.
type Ranks struct {
	SrcTP, SrcPP, DstTP int
}

// Check refuses sizes that do not divide one another, and numbers of heads that cannot be
// dealt out to them. heads are the numbers that the model's components have, see
// Part.HeadsOf.
func (r Ranks) Check(heads ...int) error {
	if r.SrcTP < 1 || r.SrcPP < 1 || r.DstTP < 1 {
		return fmt.Errorf("tensor parallel sizes %d and %d, pipeline parallel size %d: all must be at least 1", r.SrcTP, r.DstTP, r.SrcPP)
	}
	if r.SrcTP%r.DstTP != 0 && r.DstTP%r.SrcTP != 0 {
		return fmt.Errorf("tensor parallel size %d of the producer and %d of the consumer: one must divide the other", r.SrcTP, r.DstTP)
	}
	for _, n := range heads {
		for _, tp := range []int{r.SrcTP, r.DstTP} {
			if n < 1 || n%tp != 0 && tp%n != 0 {
				return fmt.Errorf("%d heads cannot be dealt out to %d ranks", n, tp)
			}
		}
	}
	return nil
}

// Heads is which of a model's heads a rank holds, if tp ranks share them evenly. If there
// are more ranks than heads, neighbours hold the same one; so with one head, which is what
// the latent of MLA amounts to, all do.
func Heads(rank, tp, heads int) Axis {
	return Axis{First: uint32(rank * heads / tp), N: uint32(max(1, heads/tp))}
}

// Producers is which tensor-parallel ranks of each stage a consumer rank deals with. It
// registers with all of them and hears from all of them, silent ones too.
func (r Ranks) Producers(consumer int) []int { return partners(consumer, r.DstTP, r.SrcTP) }

// Consumers is which consumer ranks a tensor-parallel rank of any stage deals with.
func (r Ranks) Consumers(producer int) []int { return partners(producer, r.SrcTP, r.DstTP) }

// Notifications is how many completions a consumer rank waits for.
func (r Ranks) Notifications() int { return r.SrcPP * max(1, r.SrcTP/r.DstTP) }

// partners is which of so many others a rank deals with.
func partners(rank, size, others int) []int {
	list := make([]int, max(1, others/size))
	for i := range list {
		list[i] = rank*others/size + i
	}
	return list
}

// Split tells a consumer rank's producers that write a component with so many heads from
// those that only notify, because one before them holds the same head. Together the
// writers write each byte once.
func (r Ranks) Split(consumer, heads int) (writers, silent []int) {
	for i, p := range r.Producers(consumer) {
		if i > 0 && Heads(p, r.SrcTP, heads) == Heads(p-1, r.SrcTP, heads) {
			silent = append(silent, p)
		} else {
			writers = append(writers, p)
		}
	}
	return writers, silent
}

// Share is what of its cache a producer rank writes to one of its consumers: the parts for
// which it is a writer. A mapping of a share may be empty.
func (r Ranks) Share(src Cache, producer, consumer int) Cache {
	var share Cache
	for _, region := range src {
		var parts []Part
		for _, p := range region.Parts {
			if r.writes(producer, consumer, int(p.HeadsOf)) {
				parts = append(parts, p)
			}
		}
		if region.Parts = parts; len(parts) > 0 {
			share = append(share, region)
		}
	}
	return share
}

func (r Ranks) writes(producer, consumer, heads int) bool {
	writers, _ := r.Split(consumer, heads)
	return slices.Contains(writers, producer)
}

// Wanted is what of its cache a consumer rank gets from one of its producers, whose stage has
// these layers. Its regions are those of dst, with fewer parts.
func (r Ranks) Wanted(dst Cache, producer, consumer int, stage []Axis) Cache {
	wanted := slices.Clone(dst)
	for i := range wanted {
		wanted[i].Parts = nil
		for _, p := range dst[i].Parts {
			from, to := p.Heads.overlap(Heads(producer, r.SrcTP, int(p.HeadsOf)))
			if from >= to || !r.writes(producer, consumer, int(p.HeadsOf)) {
				continue
			}
			p.Heads.First, p.Heads.N = from, to-from
			for _, layers := range stage {
				if first, end := p.Layers.overlap(layers); first < end {
					p := p
					p.Layers.First, p.Layers.N = first, end-first
					wanted[i].Parts = append(wanted[i].Parts, p)
				}
			}
		}
	}
	return wanted
}

// CheckRank checks that a cache holds the heads of a rank, see Heads: what ranks write to each
// other is found by that rule.
func (c Cache) CheckRank(rank, tp int) error {
	for i := range c {
		for _, p := range c[i].Parts {
			n := int(p.HeadsOf)
			if n%tp != 0 && tp%n != 0 {
				return fmt.Errorf("region %d (%.64s), component %.64s: %d heads cannot be dealt out to %d ranks", i, c[i].Name, p.Component, n, tp)
			}
			if want := Heads(rank, tp, n); p.Heads.First != want.First || p.Heads.N != want.N {
				return fmt.Errorf("region %d (%.64s), component %.64s: heads %d-%d of %d, rank %d of %d has %d-%d", i, c[i].Name, p.Component,
					p.Heads.First, p.Heads.First+p.Heads.N-1, n, rank, tp, want.First, want.First+want.N-1)
			}
		}
	}
	return nil
}

// Layers is which layers a cache has something of, in order. A stage need not have a single
// range of them: a drafter's layers are numbered behind the model's.
func (c Cache) Layers() (ranges []Axis) {
	for i := range c {
		for _, p := range c[i].Parts {
			ranges = append(ranges, Axis{First: p.Layers.First, N: p.Layers.N})
		}
	}
	slices.SortFunc(ranges, func(a, b Axis) int { return cmp.Compare(a.First, b.First) })
	n := 0
	for _, a := range ranges {
		if last := n - 1; last >= 0 && a.First <= ranges[last].First+ranges[last].N {
			ranges[last].N = max(ranges[last].N, a.First+a.N-ranges[last].First)
			continue
		}
		ranges[n] = a
		n++
	}
	return ranges[:n]
}
