package connector

import (
	"fmt"
	"slices"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/notify"
)

// complete checks a Layout and fills in the defaults.
func (c *Layout) complete() error {
	c.PhysicalPerLogical = max(c.PhysicalPerLogical, 1)
	switch {
	case len(c.Regions) == 0:
		return fmt.Errorf("%w: layout without regions", ErrInvalid)
	case c.BlockSize < 1:
		return fmt.Errorf("%w: layout with %d tokens per block", ErrInvalid, c.BlockSize)
	case c.NumBlocks < 1:
		return fmt.Errorf("%w: layout with %d blocks", ErrInvalid, c.NumBlocks)
	}
	for i, m := range c.Memory {
		if m.Addr == 0 || m.Len == 0 || m.Addr+m.Len < m.Addr {
			return fmt.Errorf("%w: memory %d: %d bytes at %#x", ErrInvalid, i, m.Len, m.Addr)
		}
	}
	for i := range c.Regions {
		if err := c.checkRegion(&c.Regions[i]); err != nil {
			return fmt.Errorf("%w: region %d (%s): %w", ErrInvalid, i, c.Regions[i].Name, err)
		}
	}
	return nil
}

func (c *Layout) checkRegion(r *Region) error {
	switch {
	case r.NumBlocks < 1 || r.NumBlocks > 1<<22:
		return fmt.Errorf("%d blocks", r.NumBlocks)
	case r.BlockLen == 0 || r.Stride < r.BlockLen || r.Stride > 1<<40:
		return fmt.Errorf("blocks of %d bytes, %d bytes apart", r.BlockLen, r.Stride)
	case r.NumBlocks%c.PhysicalPerLogical != 0:
		return fmt.Errorf("%d blocks is not a multiple of %d, the blocks per block id", r.NumBlocks, c.PhysicalPerLogical)
	case r.Group < blocks.AnyGroup || r.Group >= blocks.MaxGroups:
		return fmt.Errorf("group %d", r.Group)
	case r.Mem != c.Regions[0].Mem:
		return fmt.Errorf("memory of type %d beside %d: regions of several kinds are not supported yet", r.Mem, c.Regions[0].Mem)
	}
	size := uint64(r.NumBlocks-1)*r.Stride + r.BlockLen
	inside := slices.ContainsFunc(c.Memory, func(m Memory) bool {
		return m.Mem == r.Mem && r.Base >= m.Addr && size <= m.Len && r.Base-m.Addr <= m.Len-size
	})
	if !inside {
		return fmt.Errorf("%d bytes at %#x are not within the memory to register", size, r.Base)
	}
	return nil
}

// groups is how many lists of block ids a request has.
func (c *Layout) groups() int {
	n := 1
	for _, r := range c.Regions {
		n = max(n, r.Group+1)
	}
	return n
}

// logicalBlocks is how many block ids there are.
func (c *Layout) logicalBlocks() int {
	n := c.Regions[0].NumBlocks
	for _, r := range c.Regions {
		n = min(n, r.NumBlocks)
	}
	return n / c.PhysicalPerLogical
}

// cache is where the blocks of one worker lie: of this one, or of a peer.
type cache struct {
	regions blocks.Cache
	mem     nixl.Mem
	device  uint64
}

func (c *Layout) cache() cache {
	var regions blocks.Cache
	for i, r := range c.Regions {
		regions = append(regions, c.wholeBlocks(i, blocks.Region{
			Base: r.Base, Stride: r.Stride, NumBlocks: uint32(r.NumBlocks), Group: r.Group}, r.BlockLen))
	}
	return cache{regions, c.Regions[0].Mem, uint64(c.DeviceID)}
}

// wholeBlocks completes region i as far as vLLM 0.32 describes it: what is in a block is
// not known, so that blocks can only be moved whole.
func (c *Layout) wholeBlocks(i int, r blocks.Region, blockLen uint64) blocks.Region {
	r.Name, r.PerID, r.Tokens = c.Regions[i].Name, uint32(c.PhysicalPerLogical), uint32(c.BlockSize)
	r.Parts = []blocks.Part{{Component: "block", Size: blockLen, Layers: blocks.One(uint32(i)), Heads: blocks.One(0), HeadsOf: 1}}
	return r
}

// check validates a step against the cache before anything of it is taken.
func (s *Step) check(layout *Layout) error {
	for i := range s.Expects {
		x := &s.Expects[i]
		err := checkIDs(x.RequestID, x.TransferID, x.RemoteRequestID)
		if err == nil {
			err = x.Producer.check()
		}
		if err == nil && len(x.Blocks) > 0 {
			err = x.Blocks.check(layout)
		}
		if err != nil {
			return fmt.Errorf("%w: expect %d (%.64q): %w", ErrInvalid, i, x.RequestID, err)
		}
	}
	for i := range s.Offers {
		o := &s.Offers[i]
		err := checkIDs(o.RequestID, o.TransferID)
		if err == nil {
			err = o.Blocks.check(layout)
		}
		if err == nil && o.Lease < 0 {
			err = fmt.Errorf("lease of %v", o.Lease)
		}
		if err != nil {
			return fmt.Errorf("%w: offer %d (%.64q): %w", ErrInvalid, i, o.RequestID, err)
		}
	}
	return nil
}

func checkIDs(requestID string, others ...string) error {
	if requestID == "" {
		return fmt.Errorf("no request id")
	}
	for _, id := range append(others, requestID) {
		if len(id) > notify.MaxID {
			return fmt.Errorf("id of %d bytes, limit is %d", len(id), notify.MaxID)
		}
	}
	return nil
}

func (p *Endpoint) check() error {
	p.TPSize, p.PPSize = max(p.TPSize, 1), max(p.PPSize, 1)
	switch {
	case p.EngineID == "" || len(p.EngineID) > notify.MaxID:
		return fmt.Errorf("producer's engine id of %d bytes", len(p.EngineID))
	case p.Host == "" || len(p.Host) > notify.MaxID:
		return fmt.Errorf("producer's host of %d bytes", len(p.Host))
	case p.Port < 1 || p.Port > 65535:
		return fmt.Errorf("producer's port %d is not within 1 and 65535", p.Port)
	}
	return nil
}

func (b BlockIDs) check(layout *Layout) error {
	if len(b) != layout.groups() {
		return fmt.Errorf("%d lists of block ids, the cache has %d groups", len(b), layout.groups())
	}
	limit := uint32(layout.logicalBlocks())
	for g, ids := range b {
		for _, id := range ids {
			if id >= limit {
				return fmt.Errorf("group %d: block id %d is out of range: the cache has %d blocks", g, id, limit)
			}
		}
	}
	return nil
}
