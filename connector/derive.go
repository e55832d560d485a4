package connector

import (
	"fmt"
	"math/bits"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/notify"
)

// theirs is the cache of a peer's rank of size ranks: as it describes it or, since a stock
// engine does not say what is in a block, as ours would be with the peer's sizes. whole
// demands that every region of ours has its like there, else every region there has its like here.
func (c *Layout) theirs(m *notify.AgentMetadata, rank, size int, whole bool) (cache, error) {
	ours := cacheOf(c)
	their := cache{mem: ours.mem, device: uint64(m.DeviceID)}
	var err error
	switch {
	case m.AttnBackend != c.AttentionBackend:
		return their, differ("attention backend", c.AttentionBackend, m.AttnBackend)
	case m.DCPSize > 1 || m.PCPSize > 1:
		return their, fmt.Errorf("decode and prefill context parallel sizes are %d and %d there: tokens that are dealt out to ranks cannot be mapped", m.DCPSize, m.PCPSize)
	}
	if their.mem, err = memOf(m, ours.mem); err != nil {
		return their, err
	}
	if m.Extension != nil && m.Extension.Cache != nil && ours.described() {
		their.regions = offTheWire(m.Extension.Cache)
	} else if their.regions, err = c.derive(ours.regions, m, rank, size, whole); err != nil {
		return their, err
	}
	if err := their.regions.Check(); err != nil {
		return their, fmt.Errorf("it is described wrongly: %w", err)
	}
	if err := their.regions.CheckRank(rank, size); err != nil {
		return their, fmt.Errorf("it is described wrongly: %w", err)
	}
	return their, nil
}

func differ(what string, ours, theirs any) error {
	return fmt.Errorf("%s is %v here and %v there", what, ours, theirs)
}

// memOf is the kind of memory a peer's regions lie in; it need not say.
func memOf(m *notify.AgentMetadata, ours nixl.Mem) (nixl.Mem, error) {
	for _, name := range m.RegionMemTypes {
		if name != m.RegionMemTypes[0] {
			return 0, fmt.Errorf("regions of several kinds of memory are not supported yet")
		}
	}
	switch {
	case len(m.RegionMemTypes) == 0:
		return ours, nil
	case m.RegionMemTypes[0] == memName(nixl.VRAM):
		return nixl.VRAM, nil
	}
	return nixl.DRAM, nil
}

// derive makes a description from vLLM's fields and ours.
func (c *Layout) derive(ours blocks.Cache, m *notify.AgentMetadata, rank, size int, whole bool) (blocks.Cache, error) {
	n := len(m.BaseAddrs)
	switch {
	case m.CacheLayout != c.Name:
		return nil, differ("cache layout", c.Name, m.CacheLayout)
	case len(m.BlockLens) != n || len(m.BlockStrides) != n:
		return nil, fmt.Errorf("%d regions come with %d block lengths and %d strides", n, len(m.BlockLens), len(m.BlockStrides))
	}
	like, err := c.alike(m, whole)
	if err != nil {
		return nil, err
	}
	heads := func(of uint32) blocks.Axis { return blocks.Heads(rank, size, int(of)) }
	var derived blocks.Cache
	for i, k := range like {
		if k < 0 {
			continue
		}
		r, err := c.deriveRegion(m, i, k, &ours[k], heads)
		if err != nil {
			return nil, fmt.Errorf("region %d (%.64s): %w", i, ours[k].Name, err)
		}
		derived = append(derived, r)
	}
	return derived, nil
}

// alike finds for each region of the peer ours of the same layer, -1 if there is none: by
// name if the peer has names, else by order. Of regions of one name the order counts.
func (c *Layout) alike(m *notify.AgentMetadata, whole bool) ([]int, error) {
	n := len(m.BaseAddrs)
	if m.RegionNames == nil {
		if n != len(c.Regions) {
			return nil, differ("number of regions", len(c.Regions), n)
		}
		like := make([]int, n)
		for i := range like {
			like[i] = i
		}
		return like, nil
	}
	if len(m.RegionNames) != n {
		return nil, fmt.Errorf("%d names for %d regions", len(m.RegionNames), n)
	}
	byName := map[string][]int{}
	for k, r := range c.Regions {
		byName[r.Name] = append(byName[r.Name], k)
	}
	like := make([]int, n)
	for i, name := range m.RegionNames {
		like[i] = -1
		if found := byName[name]; len(found) > 0 {
			like[i], byName[name] = found[0], found[1:]
		} else if !whole {
			return nil, fmt.Errorf("region %d there (%.64s) is not here", i, name)
		}
	}
	for _, r := range c.Regions {
		if whole && len(byName[r.Name]) > 0 {
			return nil, fmt.Errorf("region %s is not there", r.Name)
		}
	}
	return like, nil
}

// deriveRegion describes region i of the peer, which is like region k of ours.
func (c *Layout) deriveRegion(m *notify.AgentMetadata, i, k int, ours *blocks.Region, heads func(uint32) blocks.Axis) (blocks.Region, error) {
	to, err := remoteRegion(m, i, ours)
	if err != nil {
		return to, err
	}
	scaled := c.Regions[k].Tokens == c.BlockSize && len(c.Regions[k].Parts) > 0
	switch {
	case scaled && int(ours.PerID) == c.PhysicalPerLogical && within(m.BlockSize, maxTokens) && within(m.PhysicalPerLogical, int(to.NumBlocks)):
		to.Tokens, to.PerID = uint32(m.BlockSize), uint32(m.PhysicalPerLogical)
	case m.BlockSize != c.BlockSize:
		return to, differ("block size in tokens", c.BlockSize, m.BlockSize)
	case m.PhysicalPerLogical != c.PhysicalPerLogical:
		return to, differ("kernel blocks per block", c.PhysicalPerLogical, m.PhysicalPerLogical)
	}
	blockLen := m.BlockLens[i]
	if len(c.Regions[k].Parts) == 0 {
		if m.SSMSizes != c.SSMSizes {
			return to, differ("state sizes", c.SSMSizes, m.SSMSizes)
		}
		if to.Parts = ours.Parts; blockLen != c.Regions[k].BlockLen {
			return to, differ("block length", c.Regions[k].BlockLen, blockLen)
		}
		return to, nil
	}
	if to, err = ours.Reshaped(to, heads); err != nil {
		return to, fmt.Errorf("its blocks cannot be derived from ours (%v): %w", ours, err)
	}
	// Padding, if ours has some, grows with the rest.
	if !equalRatio(blockLen, to.BlockBytes(), c.Regions[k].BlockLen, ours.BlockBytes()) {
		return to, fmt.Errorf("blocks of %d bytes there do not fit: ours have %d and are %v; theirs should be %v", blockLen, c.Regions[k].BlockLen, ours, to)
	}
	return to, nil
}

func within(n, limit int) bool { return n >= 1 && n <= limit }

// equalRatio reports whether a/b = c/d.
func equalRatio(a, b, c, d uint64) bool {
	high, low := bits.Mul64(a, d)
	otherHigh, otherLow := bits.Mul64(b, c)
	return high == otherHigh && low == otherLow
}

// remoteRegion reads where region i of a peer lies, which may be anything. The rest is as ours.
func remoteRegion(m *notify.AgentMetadata, i int, ours *blocks.Region) (blocks.Region, error) {
	r := *ours
	numBlocks := m.NumBlocks
	if m.RegionNumBlocks != nil {
		if len(m.RegionNumBlocks) != len(m.BaseAddrs) {
			return r, fmt.Errorf("%d block counts for %d regions", len(m.RegionNumBlocks), len(m.BaseAddrs))
		}
		numBlocks = m.RegionNumBlocks[i]
	}
	r.Base, r.Stride = m.BaseAddrs[i], m.BlockStrides[i]
	if m.RegionGroupIDs != nil {
		if len(m.RegionGroupIDs) != len(m.BaseAddrs) {
			return r, fmt.Errorf("%d group ids for %d regions", len(m.RegionGroupIDs), len(m.BaseAddrs))
		}
		if m.RegionGroupIDs[i] != ours.Group {
			return r, differ("group", ours.Group, m.RegionGroupIDs[i])
		}
	}
	if m.RegionMemTypes != nil && len(m.RegionMemTypes) != len(m.BaseAddrs) {
		return r, fmt.Errorf("%d memory types for %d regions", len(m.RegionMemTypes), len(m.BaseAddrs))
	}
	switch {
	case !within(numBlocks, 1<<31):
		return r, fmt.Errorf("%d blocks", numBlocks)
	case r.Stride > 1<<40:
		return r, fmt.Errorf("blocks %d bytes apart", r.Stride)
	}
	r.NumBlocks = uint32(numBlocks)
	return r, nil
}
