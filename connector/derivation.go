package connector

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/notify"
)

// derivation finds out what a stock peer's cache is: where its regions lie from what it tells,
// what is in their blocks from ours.
type derivation struct {
	*Layout
	ours  blocks.Cache
	m     *notify.AgentMetadata
	there stock
	heads func(of uint32) blocks.Axis // that the peer holds
	used  []bool                      // regions there that are like one of ours
}

// derive makes a description from vLLM's fields and ours.
func (c *Layout) derive(m *notify.AgentMetadata, rank, size int, s scope) (blocks.Cache, error) {
	if m.CacheLayout != c.Name {
		return nil, differ("cache layout", c.Name, m.CacheLayout)
	}
	there, err := told(m)
	if err != nil {
		return nil, err
	}
	heads := func(of uint32) blocks.Axis { return blocks.Heads(rank, size, int(of)) }
	d := derivation{c, cacheOf(c).regions, m, there, heads, make([]bool, len(there))}
	var derived blocks.Cache
	var lacking []string
	for k := range c.Regions {
		host := stock(c.Stock).host(&c.Regions[k])
		i, err := d.like(k, host)
		switch {
		case err != nil:
			return nil, err
		case i < 0:
			lacking = append(lacking, c.Regions[k].Name)
			continue
		}
		r, err := d.region(k, host, i)
		if err != nil {
			return nil, fmt.Errorf("region %d (%.64s): %w", i, c.Regions[k].Name, err)
		}
		derived = append(derived, r)
	}
	return derived, s.check(lacking, d.unused())
}

// like is which of the peer's regions has what region k of ours has, that begins in region
// host of our stock; -1 if there is none: by the layer's name if the peer has names, else by
// order. Of regions of one name the order counts.
func (d *derivation) like(k, host int) (int, error) {
	name := d.Stock[host].Name
	switch {
	case d.m.RegionNames == nil && len(d.there) != len(d.Stock):
		return 0, differ("number of regions", len(d.Stock), len(d.there))
	case d.m.RegionNames == nil:
		return d.use(host), nil
	case len(d.m.RegionMembers) > 0:
		return d.use(slices.IndexFunc(d.there, func(r StockRegion) bool {
			return slices.ContainsFunc(r.Members, func(m Member) bool { return m.Name == d.Regions[k].Name })
		})), nil
	}
	before := 0
	for _, r := range d.Stock[:host] {
		if r.Name == name {
			before++
		}
	}
	return d.use(slices.IndexFunc(d.there, func(r StockRegion) bool {
		if r.Name == name {
			before--
		}
		return r.Name == name && before < 0
	})), nil
}

// use notes that region i of the peer, and the segments that go with it, are like ours.
func (d *derivation) use(i int) int {
	if i >= 0 {
		for n := range d.there.segments(i) {
			d.used[i+n] = true
		}
	}
	return i
}

// unused is what the peer has and we do not.
func (d *derivation) unused() (names []string) {
	for i, used := range d.used {
		if !used {
			names = append(names, d.there[i].Name)
		}
	}
	return names
}

// region describes what in region i of the peer is like region k of ours.
func (d *derivation) region(k, host, i int) (blocks.Region, error) {
	ours, to := &d.ours[k], d.ours[k]
	lens, err := d.place(&to, k, host, i)
	if err != nil {
		return to, err
	}
	if err := d.setTokens(&to, k); err != nil {
		return to, err
	}
	state := d.Regions[k].Tokens == OneState
	if len(d.Regions[k].Parts) == 0 {
		switch {
		case d.m.SSMSizes != d.SSMSizes:
			return to, differ("state sizes", d.SSMSizes, d.m.SSMSizes)
		case lens.theirs != lens.ours:
			return to, differ("block length", lens.ours, lens.theirs)
		}
		return to, nil
	}
	if to, err = ours.Reshaped(to, d.heads); err != nil {
		return to, fmt.Errorf("its blocks cannot be derived from ours: %w (ours: %v)", err, ours)
	}
	fits := equalRatio(lens.theirs, to.BlockBytes(), lens.ours, ours.BlockBytes()) // padding, if there is some, grows with the rest
	if state && ours.BlockBytes() == stateBytes(d.SSMSizes) {                      // a page of tokens, of any size, is what a state is padded to
		fits = to.BlockBytes() == stateBytes(d.m.SSMSizes) && to.BlockBytes() <= lens.theirs
	}
	if !fits {
		return to, fmt.Errorf("blocks of %d bytes there do not fit: ours have %d and are %v; theirs should be %v", lens.theirs, lens.ours, ours, to)
	}
	return to, nil
}

func stateBytes(sizes [2]int) uint64 { return uint64(sizes[0]) + uint64(sizes[1]) }

// lengths are the bytes that a block has here and there.
type lengths struct{ ours, theirs uint64 }

// maxPieces of a state, that strides add up.
const maxPieces = 1 << 20

// place says where what is like region k lies in region i of the peer.
func (d *derivation) place(to *blocks.Region, k, host, i int) (lengths, error) {
	r, h, t := &d.Regions[k], &d.Stock[host], &d.there[i]
	pieces, theirPieces := uint64(1), uint64(1) // vLLM cuts blocks of states as it cuts those of tokens
	if r.Tokens == OneState && r.Stride == h.Stride*uint64(d.PhysicalPerLogical) {
		pieces, theirPieces = uint64(d.PhysicalPerLogical), uint64(max(d.m.PhysicalPerLogical, 1))
	}
	lens := lengths{h.BlockLen * pieces * uint64(stock(d.Stock).segments(host)), t.BlockLen * theirPieces * uint64(d.there.segments(i))}
	offset := r.Base - h.Base
	page, packed := t.page(r.Name)
	if packed {
		offset, lens = page.Offset, lengths{r.BlockLen, page.Len}
	} else if _, packed = h.page(r.Name); packed { // here, and the peer has its pages one by one
		offset, lens.ours = 0, r.BlockLen
	}
	switch {
	case r.Stride != h.Stride*pieces:
		return lens, fmt.Errorf("vLLM's connector says that its blocks are %d bytes apart and they are %d", h.Stride*pieces, r.Stride)
	case lens.ours < r.BlockLen:
		return lens, fmt.Errorf("vLLM's connector moves %d bytes of its blocks and they have %d", lens.ours, r.BlockLen)
	case t.Group != blocks.AnyGroup && t.Group != to.Group:
		return lens, differ("group", to.Group, t.Group)
	case offset > 0 && !packed && t.Stride != h.Stride:
		return lens, fmt.Errorf("it is one of several layers in blocks of %d bytes here and %d there: where it lies is not known", h.Stride, t.Stride)
	case packed && page.Len > 0 && page.Offset+page.Len > t.Stride:
		return lens, fmt.Errorf("it lies at %d to %d in blocks that are %d bytes apart", page.Offset, page.Offset+page.Len, t.Stride)
	case theirPieces > min(uint64(t.NumBlocks), maxPieces):
		return lens, fmt.Errorf("%d blocks there, %d of them for a state", t.NumBlocks, theirPieces)
	}
	to.Base, to.Stride, to.NumBlocks = t.Base+offset, t.Stride*theirPieces, uint32(uint64(t.NumBlocks)/theirPieces)
	return lens, nil
}

// setTokens says how many tokens the peer's blocks have, and how many blocks a block id.
func (d *derivation) setTokens(to *blocks.Region, k int) error {
	r := &d.Regions[k]
	scaled := r.Tokens == d.BlockSize && len(r.Parts) > 0 && r.PerID == d.PhysicalPerLogical
	switch {
	case scaled && within(d.m.BlockSize, maxTokens) && within(d.m.PhysicalPerLogical, int(to.NumBlocks)):
		to.Tokens, to.PerID = uint32(d.m.BlockSize), uint32(d.m.PhysicalPerLogical)
	case r.Tokens == OneState && r.PerID == 1 && len(r.Parts) > 0:
	case d.m.BlockSize != d.BlockSize:
		return differ("block size in tokens", d.BlockSize, d.m.BlockSize)
	case d.m.PhysicalPerLogical != d.PhysicalPerLogical:
		return differ("kernel blocks per block", d.PhysicalPerLogical, d.m.PhysicalPerLogical)
	}
	return nil
}

// equalRatio reports whether a/b = c/d.
func equalRatio(a, b, c, d uint64) bool {
	high, low := bits.Mul64(a, d)
	otherHigh, otherLow := bits.Mul64(b, c)
	return high == otherHigh && low == otherLow
}
