package notify

import (
	"math"

	"github.com/tinylib/msgp/msgp"
)

// CacheRegion says what is in the blocks of one region, which vLLM's fields do not. It and
// [CachePart] are plain numbers here; package blocks, which the wire does not know, gives
// them meaning and checks them.
type CacheRegion struct {
	Name      string
	Base      uint64
	Stride    uint64
	NumBlocks uint32
	PerID     uint32
	Group     int
	Tokens    uint32
	Window    uint32
	Parts     []CachePart
}

// CachePart is one component of some layers and heads in each block of a region.
type CachePart struct {
	Component   string
	Offset      uint64
	Size        uint64
	Rows        uint32
	RowStride   uint64
	Layers      CacheAxis
	Heads       CacheAxis
	HeadsOf     uint32
	TokenStride uint64
}

// CacheAxis numbers what lies Stride bytes apart.
type CacheAxis struct {
	First, N uint32
	Stride   uint64
}

// A region and a part travel as arrays, in the order of their fields, an axis as three
// entries. What follows at the end is passed over, so that fields can be added.
const (
	regionFields = 9
	partFields   = 13
)

func appendDescription(b []byte, regions []CacheRegion) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(regions)))
	for i := range regions {
		r := &regions[i]
		b = msgp.AppendString(msgp.AppendArrayHeader(b, regionFields), r.Name)
		b = msgp.AppendUint64(msgp.AppendUint64(b, r.Base), r.Stride)
		b = msgp.AppendUint32(msgp.AppendUint32(b, r.NumBlocks), r.PerID)
		b = appendInt(b, int64(r.Group))
		b = msgp.AppendUint32(msgp.AppendUint32(b, r.Tokens), r.Window)
		b = msgp.AppendArrayHeader(b, uint32(len(r.Parts)))
		for k := range r.Parts {
			b = appendPart(b, &r.Parts[k])
		}
	}
	return b
}

func appendPart(b []byte, p *CachePart) []byte {
	b = msgp.AppendString(msgp.AppendArrayHeader(b, partFields), p.Component)
	b = msgp.AppendUint64(msgp.AppendUint64(b, p.Offset), p.Size)
	b = msgp.AppendUint64(msgp.AppendUint32(b, p.Rows), p.RowStride)
	for _, a := range []CacheAxis{p.Layers, p.Heads} {
		b = msgp.AppendUint64(msgp.AppendUint32(msgp.AppendUint32(b, a.First), a.N), a.Stride)
	}
	return msgp.AppendUint64(msgp.AppendUint32(b, p.HeadsOf), p.TokenStride)
}

// description reads what appendDescription writes. The parts of all regions together are bounded.
func (r *reader) description() []CacheRegion {
	n := r.array(MaxParts)
	regions, left := make([]CacheRegion, 0, min(n, len(r.b)/regionFields)), MaxParts
	for ; n > 0 && r.err == nil; n-- {
		rest := r.fields(regionFields)
		c := CacheRegion{Name: r.str(MaxID), Base: r.uint64(), Stride: r.uint64(), NumBlocks: r.uint32(), PerID: r.uint32(),
			Group: int(r.int(math.MinInt32, math.MaxInt32)), Tokens: r.uint32(), Window: r.uint32()}
		c.Parts = r.parts(left)
		left -= len(c.Parts)
		regions = append(regions, c)
		r.skipMany(rest)
	}
	return regions
}

func (r *reader) parts(limit int) []CachePart {
	n := r.array(limit)
	parts := make([]CachePart, 0, min(n, len(r.b)/partFields))
	for ; n > 0 && r.err == nil; n-- {
		rest := r.fields(partFields)
		parts = append(parts, CachePart{Component: r.str(MaxID), Offset: r.uint64(), Size: r.uint64(), Rows: r.uint32(), RowStride: r.uint64(),
			Layers: r.axis(), Heads: r.axis(), HeadsOf: r.uint32(), TokenStride: r.uint64()})
		r.skipMany(rest)
	}
	return parts
}

func (r *reader) axis() CacheAxis { return CacheAxis{r.uint32(), r.uint32(), r.uint64()} }

// fields reads the header of an array that has at least n entries, and returns how many more.
func (r *reader) fields(n int) (more int) {
	have := r.array(math.MaxInt32)
	if have < n && r.err == nil {
		r.failf("array of %d, want at least %d", have, n)
	}
	return have - n
}

func (r *reader) skipMany(n int) {
	for ; n > 0 && r.err == nil; n-- {
		r.skip()
	}
}
