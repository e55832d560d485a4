package connector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/notify"
)

// rows is a cache of two latents, whose pages lie within the same blocks, as vLLM cuts it:
// rows that have members, or a region for each layer as a stage does.
func rows(t *testing.T, numBlocks int, byLayer bool) *Layout {
	t.Helper()
	const base, tokens, row = 1 << 20, 16, 16 * (24 + 8)
	l := &Layout{Name: "BLHNC", AttentionBackend: "TEST", BlockSize: tokens, NumBlocks: numBlocks, PhysicalPerLogical: 1,
		Memory: []Memory{{}}}
	l.Memory[0].Addr, l.Memory[0].Len = base, uint64(numBlocks)*row
	at := uint64(0)
	var members []Member
	for i, size := range []uint64{24, 8} {
		name := fmt.Sprintf("layers.%d", i)
		part := Part{Component: "latent", Size: size, Layers: blocks.One(uint32(i)), Heads: blocks.One(0), HeadsOf: 1, TokenStride: size}
		l.Regions = append(l.Regions, Region{Name: name, Base: base + at, BlockLen: size * tokens, Stride: row, NumBlocks: numBlocks, Parts: []Part{part}})
		if byLayer {
			l.Stock = append(l.Stock, StockRegion{Name: name, Base: base + at, BlockLen: size * tokens, Stride: row, NumBlocks: numBlocks, Members: []Member{{Name: name}}})
		}
		members = append(members, Member{name, at, size * tokens})
		at += size * tokens
	}
	if !byLayer {
		l.Stock = []StockRegion{{Name: "layers.0", Base: base, BlockLen: row, Stride: row, NumBlocks: numBlocks, Members: members}}
	}
	if err := l.complete(0, 1); err != nil {
		t.Fatal(err)
	}
	return l
}

// tells is what a peer with such a cache tells.
func (c *Layout) tells() *notify.AgentMetadata {
	m := &notify.AgentMetadata{CacheLayout: c.Name, AttnBackend: c.AttentionBackend, BlockSize: c.BlockSize, NumBlocks: c.NumBlocks,
		PhysicalPerLogical: c.PhysicalPerLogical, SSMSizes: c.SSMSizes, DCPSize: 1, PCPSize: 1}
	stock(c.Stock).tell(m)
	return m
}

// TestRowsWithMembers has each side in either way; what is derived is what is there.
func TestRowsWithMembers(t *testing.T) {
	for _, here := range []bool{false, true} {
		for _, there := range []bool{false, true} {
			peer := rows(t, 7, there)
			got, err := rows(t, 5, here).theirs(peer.tells(), 0, 1, scope{true, true})
			if err != nil {
				t.Fatal(err)
			}
			if want := cacheOf(peer).regions; fmt.Sprintf("%+v", got.regions) != fmt.Sprintf("%+v", want) {
				t.Errorf("by layer here %v, there %v: %+v, want %+v", here, there, got.regions, want)
			}
		}
	}
}

func TestStockPeersRefused(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(m *notify.AgentMetadata)
	}{
		{"decode context parallel", "context parallel sizes are 2 and 1 there", func(m *notify.AgentMetadata) { m.DCPSize = 2 }},
		{"prefill context parallel", "context parallel sizes are 1 and 4 there", func(m *notify.AgentMetadata) { m.PCPSize = 4 }},
		{"names", "1 regions come with 2 names", func(m *notify.AgentMetadata) { m.RegionNames = append(m.RegionNames, "x") }},
		{"members", "1 regions come with 2 lists of members", func(m *notify.AgentMetadata) { m.RegionMembers = append(m.RegionMembers, nil) }},
		{"strides", "1 regions come with 0 strides", func(m *notify.AgentMetadata) { m.BlockStrides = nil }},
		{"blocks", "region 0 (layers.0): -1 blocks", func(m *notify.AgentMetadata) { m.RegionNumBlocks[0] = -1 }},
		{"no member", "region layers.1 is not there", func(m *notify.AgentMetadata) { m.RegionMembers[0] = m.RegionMembers[0][:1] }},
		{"another region", "region drafter there is not here", func(m *notify.AgentMetadata) {
			extra := rows(t, 5, false).Stock
			extra[0].Name, extra[0].Members[0].Name, extra[0].Members[1].Name = "drafter", "a", "b"
			stock(extra).tell(m)
		}},
		{"page", "blocks of 256 bytes there do not fit", func(m *notify.AgentMetadata) { m.PackedMemberLayouts["layers.0"] = [2]int{0, 256} }},
		{"page outside", "it lies at 256 to 640 in blocks that are 512 bytes apart", func(m *notify.AgentMetadata) { m.PackedMemberLayouts["layers.0"] = [2]int{256, 384} }},
		{"no page", "blocks of 512 bytes there do not fit", func(m *notify.AgentMetadata) { m.PackedMemberLayouts = nil }},
		{"group", "group is 0 here and 1 there", func(m *notify.AgentMetadata) { m.RegionGroupIDs[0] = 1 }},
		{"layout", "cache layout is BLHNC here and LBHNC there", func(m *notify.AgentMetadata) { m.CacheLayout = "LBHNC" }},
	} {
		m := rows(t, 7, false).tells()
		c.change(m)
		if _, err := rows(t, 5, false).theirs(m, 0, 1, scope{true, true}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestSharedRegion has a region that several groups share, as hybrid models have.
func TestSharedRegion(t *testing.T) {
	m := rows(t, 7, false).tells()
	m.RegionGroupIDs[0] = blocks.AnyGroup
	if _, err := rows(t, 5, false).theirs(m, 0, 1, scope{true, true}); err != nil {
		t.Error(err)
	}
}

// TestStockDoesNotTellAll: what vLLM's connector says of our own cache is not what it is.
func TestStockDoesNotTellAll(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(r *StockRegion)
	}{
		{"vLLM's connector moves 256 bytes of its blocks and they have 384", func(r *StockRegion) { r.BlockLen = 256 }},
		{"vLLM's connector says that its blocks are 384 bytes apart and they are 512", func(r *StockRegion) { r.Stride = 384 }},
	} {
		ours := rows(t, 5, true)
		c.change(&ours.Stock[0])
		if _, err := ours.theirs(rows(t, 7, true).tells(), 0, 1, scope{true, true}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func TestRegionsBeginInStockRegions(t *testing.T) {
	l := rows(t, 5, true)
	l.Stock = l.Stock[1:]
	if err := l.complete(0, 1); err == nil || !strings.Contains(err.Error(), "region 0 (layers.0) begins in none of the stock regions") {
		t.Error(err)
	}
}

// FuzzDerived has a peer tell any numbers. What is derived of them can be planned with.
func FuzzDerived(f *testing.F) {
	f.Add(uint64(1<<30), uint64(512), uint64(512), 7, 0, 16, 1, 0, 384, true)
	f.Add(uint64(1<<63), uint64(1<<40), uint64(1<<40), 1<<31, -1, 1<<24, 1<<31, -1, 1<<40, false)
	f.Fuzz(func(t *testing.T, base, length, stride uint64, numBlocks, group, tokens, perID, offset, page int, byLayer bool) {
		m := rows(t, 7, byLayer).tells()
		m.BaseAddrs[0], m.BlockLens[0], m.BlockStrides[0] = base, length, stride
		m.RegionNumBlocks[0], m.RegionGroupIDs[0], m.BlockSize, m.PhysicalPerLogical = numBlocks, group, tokens, perID
		if !byLayer {
			m.PackedMemberLayouts["layers.0"] = [2]int{offset, page}
		}
		got, err := rows(t, 5, false).theirs(m, 0, 1, scope{true, true})
		if err != nil {
			return
		}
		if _, err := blocks.NewMapping(got.regions, got.regions); err != nil {
			t.Error(err)
		}
	})
}
