package connector

import (
	"fmt"
	"slices"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/notify"
)

// stock is a cache as vLLM's own connector cuts it into regions.
type stock []StockRegion

// asTheyAre is what peers are told by an embedder that does not know vLLM's connector.
func asTheyAre(regions []Region) (s stock) {
	for _, r := range regions {
		s = append(s, StockRegion{Name: r.Name, Base: r.Base, BlockLen: r.BlockLen, Stride: r.Stride, NumBlocks: r.NumBlocks, Group: r.Group, Mem: r.Mem})
	}
	return s
}

// tell puts the regions into what peers are told.
func (s stock) tell(m *notify.AgentMetadata) {
	for _, r := range s {
		m.BaseAddrs = append(m.BaseAddrs, r.Base)
		m.BlockLens = append(m.BlockLens, r.BlockLen)
		m.BlockStrides = append(m.BlockStrides, r.Stride)
		m.RegionNumBlocks = append(m.RegionNumBlocks, r.NumBlocks)
		m.RegionGroupIDs = append(m.RegionGroupIDs, r.Group)
		m.RegionNames = append(m.RegionNames, r.Name)
		m.RegionMemTypes = append(m.RegionMemTypes, memName(r.Mem))
		if len(r.Members) > 0 {
			m.RegionMembers = append(m.RegionMembers, r.tellMembers(m))
		}
	}
}

func (r *StockRegion) tellMembers(m *notify.AgentMetadata) (names []string) {
	for _, member := range r.Members {
		names = append(names, member.Name)
		if member.Len > 0 {
			if m.PackedMemberLayouts == nil {
				m.PackedMemberLayouts = map[string][2]int{}
			}
			m.PackedMemberLayouts[member.Name] = [2]int{int(member.Offset), int(member.Len)}
		}
	}
	return names
}

// told reads the regions that a peer tells of, which may be anything.
func told(m *notify.AgentMetadata) (stock, error) {
	n := len(m.BaseAddrs)
	for what, have := range map[string]int{"block lengths": len(m.BlockLens), "strides": len(m.BlockStrides)} {
		if have != n {
			return nil, fmt.Errorf("%d regions come with %d %s", n, have, what)
		}
	}
	for what, have := range map[string]int{"block counts": len(m.RegionNumBlocks), "group ids": len(m.RegionGroupIDs),
		"names": len(m.RegionNames), "memory types": len(m.RegionMemTypes), "lists of members": len(m.RegionMembers)} {
		if have != n && have != 0 {
			return nil, fmt.Errorf("%d regions come with %d %s", n, have, what)
		}
	}
	s := make(stock, n)
	for i := range s {
		r := &s[i]
		*r = StockRegion{Base: m.BaseAddrs[i], BlockLen: m.BlockLens[i], Stride: m.BlockStrides[i], NumBlocks: m.NumBlocks, Group: blocks.AnyGroup}
		if m.RegionNumBlocks != nil {
			r.NumBlocks = m.RegionNumBlocks[i]
		}
		if m.RegionGroupIDs != nil {
			r.Group = m.RegionGroupIDs[i]
		}
		if m.RegionNames != nil {
			r.Name = m.RegionNames[i]
		}
		if len(m.RegionMembers) > 0 {
			for _, name := range m.RegionMembers[i] {
				at := m.PackedMemberLayouts[name]
				r.Members = append(r.Members, Member{name, uint64(max(at[0], 0)), uint64(max(at[1], 0))})
			}
		}
		switch {
		case !within(r.NumBlocks, 1<<31):
			return nil, fmt.Errorf("region %d (%.64s): %d blocks", i, r.Name, r.NumBlocks)
		case r.Stride > 1<<40 || r.BlockLen > 1<<40:
			return nil, fmt.Errorf("region %d (%.64s): blocks of %d bytes, %d bytes apart", i, r.Name, r.BlockLen, r.Stride)
		}
	}
	return s, nil
}

func within(n, limit int) bool { return n >= 1 && n <= limit }

// host is which of them a region begins in: of those that have begun the last, -1 if there
// is none.
func (s stock) host(r *Region) int {
	host := -1
	for i := range s {
		h := &s[i]
		if h.Base > r.Base || r.Base-h.Base >= h.Stride || h.Group != blocks.AnyGroup && h.Group != r.Group {
			continue
		}
		if host < 0 || h.Base > s[host].Base || h.Base == s[host].Base && h.Name == r.Name {
			host = i
		}
	}
	return host
}

// segments is how many regions are one layer's, whose heads lie outside of blocks: a region
// for each head, from this one on.
func (s stock) segments(first int) int {
	at := &s[first]
	n := 1
	for ; first+n < len(s); n++ {
		next := &s[first+n]
		if next.Name != at.Name || next.Base != at.Base+uint64(n)*uint64(at.NumBlocks)*at.Stride {
			break
		}
	}
	return n
}

// page is where a layer lies in a block that has the pages of several, if that is told.
func (r *StockRegion) page(layer string) (page Member, ok bool) {
	i := slices.IndexFunc(r.Members, func(m Member) bool { return m.Name == layer && m.Len > 0 })
	if i < 0 {
		return Member{}, false
	}
	return r.Members[i], true
}
