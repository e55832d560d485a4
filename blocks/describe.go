package blocks

import (
	"fmt"
	"strings"
)

// maxDescribed bounds what an error text says about a cache.
const maxDescribed = 8

// String describes a cache for an error text. Regions that differ by no more than name,
// address and layer are described once.
func (c Cache) String() string {
	if len(c) == 0 {
		return "no regions"
	}
	var list []string
	for i := 0; i < len(c); {
		if len(list) == maxDescribed {
			list = append(list, fmt.Sprintf("and %d more", len(c)-i))
			break
		}
		text, n := c[i].String(), 1
		for i+n < len(c) && c[i+n].String() == text {
			n++
		}
		which := fmt.Sprintf("region %d", i)
		if n > 1 {
			which = fmt.Sprintf("regions %d-%d", i, i+n-1)
		}
		list = append(list, which+": "+text)
		i += n
	}
	return strings.Join(list, "; ")
}

func (r Region) String() string {
	group := fmt.Sprintf("group %d", r.Group)
	if r.Group == AnyGroup {
		group = "any group"
	}
	what := "one state"
	if r.Tokens > 0 {
		what = fmt.Sprintf("%d tokens", r.Tokens)
	}
	if r.Window > 0 {
		what += fmt.Sprintf(" (window %d)", r.Window)
	}
	var parts []string
	for i := range r.Parts {
		parts = append(parts, r.Parts[i].String())
	}
	return fmt.Sprintf("%s, %d blocks of %s, %d per id, %d bytes apart [%s]",
		group, r.NumBlocks, what, r.PerID, r.Stride, strings.Join(parts, ", "))
}

func (p Part) String() string {
	text := fmt.Sprintf("%.64s at +%d: %d bytes", p.Component, p.Offset, p.Size)
	if p.Layers.N > 1 {
		text += fmt.Sprintf(" x %d layers by %d", p.Layers.N, p.Layers.Stride)
	}
	text += fmt.Sprintf(" x heads %d-%d of %d", p.Heads.First, p.Heads.First+p.Heads.N-1, p.HeadsOf)
	if p.Heads.N > 1 {
		text += fmt.Sprintf(" by %d", p.Heads.Stride)
	}
	if p.rows() > 1 {
		text += fmt.Sprintf(" x %d rows by %d", p.Rows, p.RowStride)
	}
	if p.TokenStride > 0 {
		text += fmt.Sprintf(" x tokens by %d", p.TokenStride)
	}
	return text
}
