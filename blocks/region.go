package blocks

import (
	"fmt"
	"math/bits"
	"slices"
)

// Cache is the KV cache of one worker: all regions that its block ids lead to.
type Cache []Region

// Region is a strided array of equal blocks. Block b begins at Base + b*Stride.
type Region struct {
	Name      string // for people: the layer's, or that of the first of them
	Base      uint64 // address of block 0
	Stride    uint64 // bytes from one block to the next
	NumBlocks uint32
	PerID     uint32 // consecutive blocks that one block id stands for
	Group     int    // group whose block ids lead here; AnyGroup: every group's
	Tokens    uint32 // in a block; 0 if a block holds one state, as with Mamba
	// Window is how many tokens the layers look back, 0 if all. The block lists of such a
	// group may lack what lies before. It is the same in all regions of a group; regions of
	// any group have none of their own.
	Window uint32
	Parts  []Part // what is in a block
}

// AnyGroup marks a region that every group's block ids lead to.
const AnyGroup = -1

// MaxGroups is how many groups a request can have.
const MaxGroups = 64

// Part is one component of some layers in each block of a region: an element for each
// (layer, head, token), Rows times Size bytes without a gap, at
//
//	block + Offset + (layer-Layers.First)*Layers.Stride + (head-Heads.First)*Heads.Stride + token*TokenStride + row*RowStride
type Part struct {
	Component   string // what it is, by the name that both sides give it: "k", "v", "latent" ...
	Offset      uint64
	Size        uint64 // bytes of one row of an element
	Rows        uint32 // of an element, e.g. its numbers if K is transposed; 0: 1
	RowStride   uint64
	Layers      Axis   // numbered as in the whole model
	Heads       Axis   // likewise; whatever tensor parallelism deals out: heads, or channels of a state
	HeadsOf     uint32 // how many heads the whole model has; 1 if every rank holds the same
	TokenStride uint64 // 0: an element is about all tokens of a block and cannot be divided
}

// Axis numbers what lies Stride bytes apart: First, First+1, ... First+N-1.
type Axis struct {
	First, N uint32
	Stride   uint64
}

// One is an axis of one.
func One(index uint32) Axis { return Axis{First: index, N: 1} }

// overlap is what two axes have in common, from first to before end; empty if first >= end.
func (a Axis) overlap(b Axis) (first, end uint32) {
	return max(a.First, b.First), min(a.First+a.N, b.First+b.N)
}

// rows is how many rows an element has.
func (p *Part) rows() uint64 { return uint64(max(p.Rows, 1)) }

// ids is how many block ids lead to the region.
func (r *Region) ids() uint32 { return r.NumBlocks / r.PerID }

// groups is the set of groups whose ids lead to the region.
func (r *Region) groups() uint64 {
	if r.Group == AnyGroup {
		return 1<<MaxGroups - 1
	}
	return 1 << r.Group
}

// Check says what is wrong with a description, e.g. a peer's. What passes can be planned
// with: no address leaves the 63 bits, no two elements of an axis overlap.
func (c Cache) Check() error {
	for i := range c {
		if err := c[i].check(); err != nil {
			return fmt.Errorf("region %d (%.64s): %w", i, c[i].Name, err)
		}
		if w := c.window(c[i].Group); w != c[i].Window {
			return fmt.Errorf("region %d (%.64s): a window of %d tokens, other layers of group %d have %d", i, c[i].Name, c[i].Window, c[i].Group, w)
		}
	}
	return nil
}

// window is that of a group: its first region's, 0 for any group.
func (c Cache) window(group int) uint32 {
	i := slices.IndexFunc(c, func(r Region) bool { return r.Group == group })
	if group == AnyGroup || i < 0 {
		return 0
	}
	return c[i].Window
}

func (r *Region) check() error {
	switch {
	case r.NumBlocks < 1 || r.PerID < 1 || r.PerID > r.NumBlocks:
		return fmt.Errorf("%d blocks, %d per block id", r.NumBlocks, r.PerID)
	case r.Group < AnyGroup || r.Group >= MaxGroups:
		return fmt.Errorf("group %d is not within 0 and %d", r.Group, MaxGroups-1)
	case len(r.Parts) == 0:
		return fmt.Errorf("nothing is in its blocks")
	}
	for i := range r.Parts {
		if err := r.checkPart(&r.Parts[i]); err != nil {
			return fmt.Errorf("component %.64q: %w", r.Parts[i].Component, err)
		}
	}
	return nil
}

func (r *Region) checkPart(p *Part) error {
	if p.Size == 0 || p.Component == "" {
		return fmt.Errorf("elements of %d bytes, or without a name", p.Size)
	}
	if p.rows() > 1 && p.RowStride < p.Size {
		return fmt.Errorf("%d rows of %d bytes, %d bytes apart", p.Rows, p.Size, p.RowStride)
	}
	for _, a := range []Axis{p.Layers, p.Heads} {
		if a.N == 0 || a.First+a.N < a.First || a.N > 1 && a.Stride < p.Size {
			return fmt.Errorf("%d layers or heads from %d on, %d bytes apart with %d bytes each", a.N, a.First, a.Stride, p.Size)
		}
	}
	if end := p.Heads.First + p.Heads.N; end > p.HeadsOf {
		return fmt.Errorf("heads up to %d of %d", end, p.HeadsOf)
	}
	if p.TokenStride > 0 && (r.Tokens == 0 || p.TokenStride < p.Size) {
		return fmt.Errorf("%d tokens of %d bytes, %d bytes apart", r.Tokens, p.Size, p.TokenStride)
	}
	head := r.ofHead(p)
	if head.over || head.at > r.Stride {
		return fmt.Errorf("%d tokens, %d bytes apart, of %d rows, %d bytes apart, are more than the %d bytes from block to block",
			r.Tokens, p.TokenStride, p.rows(), p.RowStride, r.Stride)
	}
	if _, ok := r.end(p); !ok {
		return fmt.Errorf("%d blocks, %d bytes apart from %#x on, do not fit into memory", r.NumBlocks, r.Stride, r.Base)
	}
	return nil
}

// ofHead is how far what a block holds of one head reaches.
func (r *Region) ofHead(p *Part) reach {
	n := reach{at: p.Size}
	n.add(p.rows()-1, p.RowStride)
	n.add(uint64(max(r.Tokens, 1)-1), p.TokenStride)
	return n
}

// end is the address behind the part's last byte in the last block.
func (r *Region) end(p *Part) (uint64, bool) {
	at := r.ofHead(p)
	at.add(1, r.Base)
	at.add(1, p.Offset)
	at.add(uint64(r.NumBlocks-1), r.Stride)
	at.add(uint64(p.Layers.N-1), p.Layers.Stride)
	at.add(uint64(p.Heads.N-1), p.Heads.Stride)
	return at.at, !at.over && at.at <= 1<<63
}

// Span is the part's bytes in all blocks, from its first to before end. The region must have
// passed Check.
func (r *Region) Span(p *Part) (first, end uint64) {
	end, _ = r.end(p)
	return r.Base + p.Offset, end
}

// reach adds up an address and notices when it leaves 64 bits.
type reach struct {
	at   uint64
	over bool
}

func (r *reach) add(n, stride uint64) {
	high, low := bits.Mul64(n, stride)
	sum, carry := bits.Add64(r.at, low, 0)
	r.at, r.over = sum, r.over || high != 0 || carry != 0
}

func (r *reach) times(n uint64) {
	high, low := bits.Mul64(r.at, n)
	r.at, r.over = low, r.over || high != 0
}
