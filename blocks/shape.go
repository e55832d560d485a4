package blocks

// A unit is the largest number of tokens that never crosses a block of either side: the
// greatest common divisor of their block sizes. Units are numbered through a region: block
// b holds the units from b*perBlock on. A plan is pairs of unit numbers, and for each pair
// the same few chunks.

// line says where the units of a region lie.
type line struct {
	perBlock uint64
	stride   uint64 // bytes from block to block
	step     uint64 // bytes from unit to unit within a block, if it has more than one
}

// at is how far unit u lies from unit 0.
func (l *line) at(u uint64) uint64 {
	if l.perBlock == 1 {
		return u * l.stride
	}
	return u/l.perBlock*l.stride + u%l.perBlock*l.step
}

// line is that of a part. Where the units are evenly spaced even from block to block, as if
// blocks had one unit each, that is what it says.
func (r *Region) line(p *Part, unit uint64) line {
	if r.Tokens == 0 || uint64(r.Tokens) == unit {
		return line{perBlock: 1, stride: r.Stride}
	}
	l := line{perBlock: uint64(r.Tokens) / unit, stride: r.Stride, step: unit * p.TokenStride}
	if l.perBlock*l.step == l.stride {
		return line{perBlock: 1, stride: l.step}
	}
	return l
}

// lines is where the units of both sides lie.
type lines struct{ src, dst line }

// shape is what is the same in several places, e.g. in every layer.
type shape struct {
	walk int // index in Mapping.walks
	lines
	places uint64 // how many there are of it
	chunks list   // of one unit, relative to the place
	dense  bool   // units adjoin on both sides, so that a run is one copy
	batch  uint64 // at most so many units of a source block are visited chunk by chunk
}

// settle chooses how to lay out the shape, once it has all its chunks. Source addresses
// rise unit by unit if all chunks of a unit lie before the next unit, and chunk by chunk
// through a block if not.
func (s *shape) settle() {
	chunks := s.chunks.copies
	last := chunks[len(chunks)-1]
	s.batch = 1
	if s.src.perBlock > 1 && last.Src+last.Len > s.src.step {
		s.batch = s.src.perBlock
	}
	s.dense = len(chunks) == 1 && s.src == s.dst && s.src.perBlock == 1 && s.src.stride == last.Len
}

// lay appends the copies of a run of units.
func (s *shape) lay(l *list, r run) {
	src, dst := uint64(r.src), uint64(r.dst)
	chunks := s.chunks.copies
	if s.dense {
		whole := [1]Copy{{Len: uint64(r.n) * s.src.stride}}
		l.paste(whole[:], src*s.src.stride, dst*s.dst.stride)
		return
	}
	for end := src + uint64(r.n); src < end; {
		if s.batch == 1 {
			l.paste(chunks, s.src.at(src), s.dst.at(dst))
			src, dst = src+1, dst+1
			continue
		}
		n := min(s.batch-src%s.batch, end-src)
		for i := range chunks {
			for u := range n {
				l.paste(chunks[i:i+1], s.src.at(src+u), s.dst.at(dst+u))
			}
		}
		src, dst = src+n, dst+n
	}
}

// place is where a shape is found: the addresses of its first chunk in unit 0.
type place struct {
	shape    int
	src, dst uint64
}
