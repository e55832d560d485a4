package blocks

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Reshaped describes a region of another worker that lays out its blocks as r does, but has
// other sizes. to says which: where it lies, how many blocks it has, how far apart, and
// how many tokens in each; heads says which heads of so many the worker holds. The parts
// follow from r's: axes in the same order, without the gaps that r has none of. What r does
// not tell, or what to has no room for, is an error.
func (r Region) Reshaped(to Region, heads func(of uint32) Axis) (Region, error) {
	if r.headByHead() && to.Tokens == r.Tokens {
		held := heads(r.Parts[0].HeadsOf)
		if held.Stride = r.Parts[0].Heads.Stride; to.Stride == held.Stride*uint64(held.N) {
			to.Parts = withHeads(r.Parts, held)
			return to, nil
		}
	}
	to.Parts = slices.Clone(r.Parts)
	slices.SortStableFunc(to.Parts, func(a, b Part) int { return cmp.Compare(a.Offset, b.Offset) })
	var was, is uint64 // where the packs so far end
	for rest := to.Parts; len(rest) > 0; {
		n := packed(rest)
		p := pack{parts: rest[:n], from: &r, to: &to}
		rest = rest[n:]
		start := p.parts[0].Offset
		if err := p.reshape(heads); err != nil {
			return to, fmt.Errorf("component %.64s: %w", p.parts[0].Component, err)
		}
		at := start // of the pack, if what lies before it has kept its size
		if was != is {
			if start != was {
				return to, fmt.Errorf("component %.64s: it does not follow the one before, so that its place in a block of another size is not known", p.parts[0].Component)
			}
			at = is
		}
		for i := range p.parts {
			p.parts[i].Offset = p.parts[i].Offset - start + at
		}
		was, is = max(was, start+p.was), max(is, at+p.is)
	}
	if is > to.Stride {
		return to, fmt.Errorf("a block has %d bytes, more than the %d from block to block", is, to.Stride)
	}
	return to, nil
}

// headByHead reports whether a block is its heads one after another, each with all that the
// parts have of it, and nothing else. Then a head looks the same in a block of more or fewer.
func (r *Region) headByHead() bool {
	if len(r.Parts) == 0 || r.BlockBytes() != r.Stride {
		return false
	}
	first := &r.Parts[0]
	for i := range r.Parts {
		p := &r.Parts[i]
		end := p.Offset + r.ofHead(p).at
		if p.Heads != first.Heads || p.HeadsOf != first.HeadsOf || p.Layers.N != 1 || end > first.Heads.Stride {
			return false
		}
	}
	return first.Heads.Stride*uint64(first.Heads.N) == r.Stride
}

func withHeads(parts []Part, heads Axis) []Part {
	parts = slices.Clone(parts)
	for i := range parts {
		parts[i].Heads = heads
	}
	return parts
}

// pack is parts that lie side by side in each element, as packed K and V do.
type pack struct {
	parts    []Part
	from, to *Region
	was, is  uint64 // bytes from its beginning to its end in a block
}

// packed is how many of the parts, which are ordered by offset, are packed with the first.
func packed(parts []Part) int {
	first := &parts[0]
	element := first.TokenStride
	strides := []uint64{first.Layers.Stride, first.Heads.Stride}
	if first.rows() > 1 {
		strides = append(strides, first.RowStride)
	}
	for _, stride := range strides {
		if stride > 0 && (element == 0 || stride < element) {
			element = stride
		}
	}
	n := 1
	for ; n < len(parts); n++ {
		p := &parts[n]
		if p.Layers != first.Layers || p.Heads != first.Heads || p.HeadsOf != first.HeadsOf ||
			p.TokenStride != first.TokenStride || p.rows() != first.rows() || p.RowStride != first.RowStride || p.Offset+p.Size > first.Offset+element {
			break
		}
	}
	return n
}

// dimension is an axis of elements, or of blocks, as it was and as it is to be.
type dimension struct {
	was, is uint64 // how many
	stride  uint64 // that was
	set     func(stride uint64)
	blocks  bool
}

// reshape gives the parts of a pack their new axes.
func (p *pack) reshape(heads func(of uint32) Axis) error {
	first := p.parts[0]
	held := heads(first.HeadsOf)
	dims := []dimension{
		{uint64(p.from.NumBlocks), uint64(p.to.NumBlocks), p.from.Stride, nil, true},
		{uint64(first.Layers.N), uint64(first.Layers.N), first.Layers.Stride, func(s uint64) { first.Layers.Stride = s }, false},
		{uint64(first.Heads.N), uint64(held.N), first.Heads.Stride, func(s uint64) { held.Stride = s }, false},
	}
	if first.rows() > 1 {
		dims = append(dims, dimension{first.rows(), first.rows(), first.RowStride, func(s uint64) { first.RowStride = s }, false})
	}
	if first.TokenStride > 0 {
		dims = append(dims, dimension{uint64(p.from.Tokens), uint64(p.to.Tokens), first.TokenStride, func(s uint64) { first.TokenStride = s }, false})
	}
	if err := p.lay(dims); err != nil {
		return err
	}
	for i := range p.parts {
		p.parts[i].Layers, p.parts[i].Heads = first.Layers, held
		p.parts[i].TokenStride, p.parts[i].RowStride = first.TokenStride, first.RowStride
	}
	return nil
}

// lay goes through the dimensions from the innermost to the outermost. Of two with equal
// strides the one with a single element is the inner one.
func (p *pack) lay(dims []dimension) error {
	slices.SortStableFunc(dims, func(a, b dimension) int {
		return cmp.Or(cmp.Compare(a.stride, b.stride), cmp.Compare(a.was, b.was))
	})
	last := p.parts[len(p.parts)-1]
	was := last.Offset + last.Size - p.parts[0].Offset
	is, gaps := was, false
	for i, d := range dims {
		stride := d.stride
		switch {
		case d.is == 1 && d.was == 1 && d.stride != was && !d.blocks: // whatever it was
			continue
		case d.stride == 0 || i > 0 && dims[i-1].stride == d.stride && d.was == 1 && d.is > 1 && dims[i-1].is > 1:
			return fmt.Errorf("the order of its axes is not known, because some have a single element")
		case d.blocks:
			p.was, p.is, stride = was, is, p.to.Stride
			whole := was == d.stride && is == stride || was == is && d.stride == stride
			if gaps && !whole { // what lies in the gaps may have another size there
				return fmt.Errorf("its elements lie with gaps, and blocks are %d bytes apart instead of %d", stride, is)
			}
		case d.stride == was:
			stride = is
		case is != was:
			return fmt.Errorf("its elements lie with gaps, so that their places in a block of another size are not known")
		default:
			gaps = true
		}
		if !d.blocks {
			d.set(stride)
		}
		over := reach{}
		over.add(d.is, stride)
		if over.over {
			return fmt.Errorf("%d elements, %d bytes apart, do not fit into memory", d.is, stride)
		}
		was, is = d.was*d.stride, d.is*stride
	}
	return nil
}

// BlockBytes is how many bytes the parts have in one block, gaps not counted. If 64 bits do
// not hold it, it is the largest number that they do.
func (r *Region) BlockBytes() uint64 {
	sum := reach{}
	for i := range r.Parts {
		p := &r.Parts[i]
		n := reach{at: p.Size}
		n.times(uint64(p.Layers.N))
		n.times(uint64(p.Heads.N))
		n.times(p.rows())
		if p.TokenStride > 0 {
			n.times(uint64(r.Tokens))
		}
		sum.add(1, n.at)
		sum.over = sum.over || n.over
	}
	if sum.over {
		return math.MaxUint64
	}
	return sum.at
}
