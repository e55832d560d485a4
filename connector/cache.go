package connector

import (
	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/notify"
)

// cache is where the blocks of one worker lie: of this one, or of a peer.
type cache struct {
	regions blocks.Cache
	mem     nixl.Mem
	device  uint64
}

// wholeBlock is the component of a region without parts: a block as one piece.
const wholeBlock = "block"

// cacheOf is what a layout describes, once it is complete.
func cacheOf(l *Layout) cache {
	c := cache{make(blocks.Cache, len(l.Regions)), l.Regions[0].Mem, uint64(l.DeviceID)}
	for i, r := range l.Regions {
		c.regions[i] = blocks.Region{Name: r.Name, Base: r.Base, Stride: r.Stride, NumBlocks: uint32(r.NumBlocks),
			PerID: uint32(r.PerID), Group: r.Group, Tokens: uint32(max(r.Tokens, 0)), Window: uint32(r.Window), Parts: r.Parts}
		if len(r.Parts) == 0 {
			c.regions[i].Parts = []blocks.Part{{Component: wholeBlock, Size: r.BlockLen,
				Layers: blocks.One(uint32(i)), Heads: blocks.One(0), HeadsOf: 1}}
		}
	}
	return c
}

// limits is what block ids are below, for each group that a request has.
func (c *cache) limits() []uint32 {
	groups := 1
	for i := range c.regions {
		groups = max(groups, c.regions[i].Group+1)
	}
	limits := make([]uint32, groups)
	for g := range limits {
		limits[g] = c.regions.IDs(g)
	}
	return limits
}

// described reports whether it is known what is in the blocks, of every region.
func (c *cache) described() bool {
	for i := range c.regions {
		if c.regions[i].Parts[0].Component == wholeBlock {
			return false
		}
	}
	return true
}

// headsOf lists the numbers of heads that the model's components have.
func (c *cache) headsOf() (list []int) {
	for i := range c.regions {
		for k := range c.regions[i].Parts {
			list = append(list, int(c.regions[i].Parts[k].HeadsOf))
		}
	}
	return list
}

// onTheWire is a description as peers are told it, nil if there is none.
func (c *cache) onTheWire() []notify.CacheRegion {
	if !c.described() {
		return nil
	}
	list := make([]notify.CacheRegion, len(c.regions))
	for i, r := range c.regions {
		list[i] = notify.CacheRegion{Name: r.Name, Base: r.Base, Stride: r.Stride, NumBlocks: r.NumBlocks,
			PerID: r.PerID, Group: r.Group, Tokens: r.Tokens, Window: r.Window}
		for _, p := range r.Parts {
			list[i].Parts = append(list[i].Parts, notify.CachePart{Component: p.Component, Offset: p.Offset, Size: p.Size, Rows: p.Rows, RowStride: p.RowStride,
				Layers: notify.CacheAxis(p.Layers), Heads: notify.CacheAxis(p.Heads), HeadsOf: p.HeadsOf, TokenStride: p.TokenStride})
		}
	}
	return list
}

// offTheWire is what a peer has told, which is yet to be checked.
func offTheWire(list []notify.CacheRegion) blocks.Cache {
	c := make(blocks.Cache, len(list))
	for i, r := range list {
		c[i] = blocks.Region{Name: r.Name, Base: r.Base, Stride: r.Stride, NumBlocks: r.NumBlocks,
			PerID: r.PerID, Group: r.Group, Tokens: r.Tokens, Window: r.Window}
		for _, p := range r.Parts {
			c[i].Parts = append(c[i].Parts, blocks.Part{Component: p.Component, Offset: p.Offset, Size: p.Size, Rows: p.Rows, RowStride: p.RowStride,
				Layers: blocks.Axis(p.Layers), Heads: blocks.Axis(p.Heads), HeadsOf: p.HeadsOf, TokenStride: p.TokenStride})
		}
	}
	return c
}
