package connector

import (
	"fmt"
	"math"
	"slices"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/notify"
)

// complete checks the Layout of a tensor parallel rank and fills in the defaults.
func (c *Layout) complete(rank, size int) error {
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
	c.Regions = slices.Clone(c.Regions) // they are the caller's
	for i := range c.Regions {
		if err := c.completeRegion(&c.Regions[i]); err != nil {
			return fmt.Errorf("%w: region %d (%s): %w", ErrInvalid, i, c.Regions[i].Name, err)
		}
	}
	if err := c.completeStock(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return c.checkCache(rank, size)
}

// completeStock sees to it that every region begins in a stock region.
func (c *Layout) completeStock() error {
	if len(c.Stock) == 0 {
		c.Stock = asTheyAre(c.Regions)
	}
	if len(c.Stock) > notify.MaxRegions {
		return fmt.Errorf("%d stock regions, at most %d", len(c.Stock), notify.MaxRegions)
	}
	for i := range c.Regions {
		if stock(c.Stock).host(&c.Regions[i]) < 0 {
			return fmt.Errorf("region %d (%s) begins in none of the stock regions", i, c.Regions[i].Name)
		}
	}
	return nil
}

// checkCache checks what the regions say of their blocks.
func (c *Layout) checkCache(rank, size int) error {
	cache := cacheOf(c)
	if n := len(cache.headsOf()); len(c.Regions) > notify.MaxParts || n > notify.MaxParts {
		return fmt.Errorf("%w: %d regions with %d parts, at most %d", ErrInvalid, len(c.Regions), n, notify.MaxParts)
	}
	if err := cache.regions.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := cache.regions.CheckRank(rank, size); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for i := range c.Regions {
		if err := c.checkParts(&c.Regions[i], &cache.regions[i]); err != nil {
			return fmt.Errorf("%w: region %d (%s): %w", ErrInvalid, i, c.Regions[i].Name, err)
		}
	}
	return nil
}

func (c *Layout) completeRegion(r *Region) error {
	if r.PerID == 0 {
		r.PerID = c.PhysicalPerLogical
	}
	if r.Tokens == 0 {
		r.Tokens = c.BlockSize
	}
	switch {
	case r.NumBlocks < 1 || r.NumBlocks > 1<<22:
		return fmt.Errorf("%d blocks", r.NumBlocks)
	case r.BlockLen == 0 || r.BlockLen > 1<<40 || r.Stride == 0 || r.Stride > 1<<40:
		return fmt.Errorf("blocks of %d bytes, %d bytes apart", r.BlockLen, r.Stride)
	case r.PerID < 1 || r.NumBlocks%r.PerID != 0:
		return fmt.Errorf("%d blocks is not a multiple of %d, the blocks per block id", r.NumBlocks, r.PerID)
	case r.Tokens < OneState || r.Tokens > maxTokens:
		return fmt.Errorf("%d tokens in a block", r.Tokens)
	case r.Window < 0 || r.Window > math.MaxUint32:
		return fmt.Errorf("window of %d tokens", r.Window)
	case r.Mem != c.Regions[0].Mem:
		return fmt.Errorf("memory of type %d beside %d: regions of several kinds are not supported yet", r.Mem, c.Regions[0].Mem)
	case len(r.Parts) > 0:
		return nil // where they lie is checked with them
	case r.Stride < r.BlockLen:
		return fmt.Errorf("blocks of %d bytes, %d bytes apart", r.BlockLen, r.Stride)
	}
	return nil
}

// maxTokens in a block.
const maxTokens = 1 << 24

// checkParts checks that what is in the blocks has no more bytes than blocks have, and lies
// in memory that is to be registered.
func (c *Layout) checkParts(r *Region, in *blocks.Region) error {
	if n := in.BlockBytes(); n > r.BlockLen {
		return fmt.Errorf("its parts have %d bytes in a block of %d", n, r.BlockLen)
	}
	for i := range in.Parts {
		p := &in.Parts[i]
		if len(r.Parts) > 0 && p.Component == wholeBlock {
			return fmt.Errorf("component %q: the name is reserved", wholeBlock)
		}
		first, end := in.Span(p)
		inside := slices.ContainsFunc(c.Memory, func(m Memory) bool {
			return m.Mem == r.Mem && first >= m.Addr && end <= m.Addr+m.Len
		})
		if !inside {
			return fmt.Errorf("component %.64s: %d bytes at %#x are not within the memory to register", p.Component, end-first, first)
		}
	}
	return nil
}
