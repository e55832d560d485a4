package blocks

import (
	"cmp"
	"slices"
)

// Copy is one piece of a plan: Len bytes from Src to Dst.
type Copy struct {
	Src, Dst, Len uint64
}

// continuedBy reports whether next begins where c ends, on both sides.
func (c *Copy) continuedBy(next Copy) bool {
	return c.Src+c.Len == next.Src && c.Dst+c.Len == next.Dst
}

// meets reports whether next can be joined to c, or does not lie behind it.
func (c *Copy) meets(next Copy) bool {
	return c.continuedBy(next) || next.Src < c.Src+c.Len
}

// list is copies of which no two can be joined. That is so because they are ordered by
// source address and do not overlap: what could be joined would be neighbours, and
// neighbours are joined as they come. If the order is broken, tidy mends it.
type list struct {
	copies []Copy
	mixed  bool // not in order
}

// paste appends the copies of a template, which is such a list itself, moved by so many
// bytes. A seam is the only place where something can be joined.
func (l *list) paste(template []Copy, src, dst uint64) {
	if len(template) == 0 {
		return
	}
	if k := len(l.copies) - 1; k >= 0 {
		last, next := &l.copies[k], template[0]
		next.Src, next.Dst = next.Src+src, next.Dst+dst
		if last.continuedBy(next) {
			last.Len += next.Len
			template = template[1:]
		} else if next.Src < last.Src+last.Len {
			l.mixed = true
		}
	}
	k := len(l.copies)
	l.copies = slices.Grow(l.copies, len(template))[:k+len(template)]
	tail := l.copies[k:]
	for i := range tail {
		c := &template[i]
		tail[i] = Copy{c.Src + src, c.Dst + dst, c.Len}
	}
}

// tidy makes a mixed list one again: ordered by source, if sources do not overlap. If they
// do, bytes are copied to several places or twice. Then copies can be joined if the
// distance from source to destination is equal, so they are ordered by that and the list
// stays mixed.
func (l *list) tidy() {
	if !l.mixed {
		return
	}
	slices.SortFunc(l.copies, func(a, b Copy) int { return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst)) })
	if l.mixed = l.join(); l.mixed {
		slices.SortFunc(l.copies, func(a, b Copy) int {
			return cmp.Or(cmp.Compare(a.Dst-a.Src, b.Dst-b.Src), cmp.Compare(a.Src, b.Src))
		})
		l.join()
	}
}

// join joins neighbours that adjoin or overlap at an equal distance, and reports whether
// other sources overlap.
func (l *list) join() (overlap bool) {
	joined := l.copies[:0]
	for _, c := range l.copies {
		if k := len(joined) - 1; k >= 0 {
			last := &joined[k]
			end := last.Src + last.Len
			if c.Src >= last.Src && c.Src <= end && c.Dst-c.Src == last.Dst-last.Src {
				last.Len = max(end, c.Src+c.Len) - last.Src
				continue
			}
			overlap = overlap || c.Src < end
		}
		joined = append(joined, c)
	}
	l.copies = joined
	return overlap
}

// bytes is how many bytes the copies have.
func (l *list) bytes() (sum uint64) {
	for i := range l.copies {
		sum += l.copies[i].Len
	}
	return sum
}
