package connector

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/notify"
)

// features of the wire that go beyond vLLM's. One is used only if both sides name it.
var features = []string{"ttl", featureWriting}

// featureWriting: the engine understands [notify.Writing].
const featureWriting = "writing"

// describe makes what peers are told about this rank.
func (e *Engine) describe(layout *Layout) ([]byte, error) {
	agent, err := e.nixl.Metadata()
	if err != nil {
		return nil, fmt.Errorf("get NIXL metadata: %w", err)
	}
	m := notify.AgentMetadata{
		EngineID:           e.cfg.EngineID,
		AgentMetadata:      agent,
		DeviceID:           layout.DeviceID,
		NumBlocks:          layout.NumBlocks,
		CacheLayout:        layout.Name,
		BlockSize:          layout.BlockSize,
		SSMSizes:           layout.SSMSizes,
		AttnBackend:        layout.AttentionBackend,
		PhysicalPerLogical: layout.PhysicalPerLogical,
		Extension:          &notify.Extension{Features: features, Factors: e.cfg.Factors},
	}
	for _, r := range layout.Regions {
		m.BaseAddrs = append(m.BaseAddrs, r.Base)
		m.BlockLens = append(m.BlockLens, r.BlockLen)
		m.BlockStrides = append(m.BlockStrides, r.Stride)
		m.RegionNumBlocks = append(m.RegionNumBlocks, r.NumBlocks)
		m.RegionGroupIDs = append(m.RegionGroupIDs, r.Group)
		m.RegionNames = append(m.RegionNames, r.Name)
		m.RegionMemTypes = append(m.RegionMemTypes, memName(r.Mem))
	}
	return notify.Payload{CompatHash: e.cfg.CompatHash, AgentMetadata: m.Encode()}.Encode(), nil
}

func memName(m nixl.Mem) string {
	if m == nixl.VRAM {
		return "VRAM"
	}
	return "DRAM"
}

// shake meets the ranks of a peer that this rank deals with. It blocks; it is called in
// a goroutine of the peer's own and touches nothing of the loop.
func (e *Engine) shake(ctx context.Context, peer peerKey, tpSize, ppSize int) ([]*remoteRank, *failure) {
	if tpSize != e.cfg.TPSize || ppSize != 1 {
		return nil, failf(ReasonIncompatible, "%s has tensor parallel size %d and pipeline parallel size %d, this engine %d and 1: unequal sizes are not supported yet",
			peer.engineID, tpSize, ppSize, e.cfg.TPSize)
	}
	frame, err := e.fetch(ctx, peer.host, peer.port, 0, e.cfg.TPRank)
	if err != nil {
		return nil, failf(ReasonUnreachable, "handshake: %w", err)
	}
	payload, err := notify.DecodePayload(frame)
	if err != nil {
		return nil, failf(ReasonIncompatible, "handshake with %s:%d: %w", peer.host, peer.port, err)
	}
	m, err := notify.DecodeAgentMetadata(payload.AgentMetadata)
	if fail := e.checkHash(payload.CompatHash, m); fail != nil {
		return nil, fail
	}
	if err != nil {
		return nil, failf(ReasonIncompatible, "handshake with %s:%d: %w", peer.host, peer.port, err)
	}
	if m.EngineID != peer.engineID {
		return nil, failf(ReasonIncompatible, "the engine at %s:%d is %s, not %s as the router said", peer.host, peer.port, m.EngineID, peer.engineID)
	}
	rank, err := e.layout.match(m)
	if err != nil {
		return nil, failf(ReasonIncompatible, "the KV cache of %s does not fit: %w", peer.engineID, err)
	}
	rank.hearsWriting = m.Extension.Has(featureWriting)
	if rank.agent, err = e.nixl.Load(m.AgentMetadata); err != nil {
		return nil, failf(ReasonUnreachable, "load NIXL metadata of %s: %w", peer.engineID, err)
	}
	return []*remoteRank{rank}, nil
}

// checkHash compares the compatibility hashes. m, which may be nil, can tell what differs.
func (e *Engine) checkHash(theirs string, m *notify.AgentMetadata) *failure {
	if theirs == e.cfg.CompatHash {
		return nil
	}
	difference := ""
	if m != nil && m.Extension != nil {
		difference = differences(e.cfg.Factors, m.Extension.Factors)
	}
	fail := failf(ReasonIncompatible, "compatibility hashes differ: ours %s, the peer's %s%s", e.cfg.CompatHash, theirs, difference)
	if e.cfg.EnforceCompat {
		return fail
	}
	e.log.Warn("going on with an incompatible peer, as configured", "why", fail)
	return nil
}

// differences lists the factors of the two hashes that are not equal.
func differences(ours, theirs map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(ours)) {
		if other, ok := theirs[key]; ok && other != ours[key] {
			list = append(list, fmt.Sprintf("%s: ours %q, theirs %q", key, ours[key], other))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "; " + strings.Join(list, ", ")
}

// match checks that a peer's cache has the geometry of this one and says where it lies.
// The error names the first difference.
func (c *Layout) match(m *notify.AgentMetadata) (*remoteRank, error) {
	differ := func(what string, ours, theirs any) error {
		return fmt.Errorf("%s is %v here and %v there", what, ours, theirs)
	}
	n := len(c.Regions)
	switch {
	case m.CacheLayout != c.Name:
		return nil, differ("cache layout", c.Name, m.CacheLayout)
	case m.AttnBackend != c.AttentionBackend:
		return nil, differ("attention backend", c.AttentionBackend, m.AttnBackend)
	case m.BlockSize != c.BlockSize:
		return nil, differ("block size in tokens", c.BlockSize, m.BlockSize)
	case m.PhysicalPerLogical != c.PhysicalPerLogical:
		return nil, differ("kernel blocks per block", c.PhysicalPerLogical, m.PhysicalPerLogical)
	case m.SSMSizes != c.SSMSizes:
		return nil, differ("state sizes", c.SSMSizes, m.SSMSizes)
	case len(m.BaseAddrs) != n:
		return nil, differ("number of regions", n, len(m.BaseAddrs))
	case len(m.BlockLens) != n || len(m.BlockStrides) != n:
		return nil, fmt.Errorf("%d regions come with %d block lengths and %d strides", n, len(m.BlockLens), len(m.BlockStrides))
	}
	rank := &remoteRank{cache: cache{nil, c.Regions[0].Mem, uint64(m.DeviceID)}}
	for i, ours := range c.Regions {
		theirs, blockLen, err := remoteRegion(m, i)
		if err != nil {
			return nil, fmt.Errorf("region %d: %w", i, err)
		}
		switch {
		case blockLen != ours.BlockLen:
			return nil, differ(fmt.Sprintf("block length of region %d (%s)", i, ours.Name), ours.BlockLen, blockLen)
		case m.RegionGroupIDs != nil && theirs.Group != ours.Group:
			return nil, differ(fmt.Sprintf("group of region %d (%s)", i, ours.Name), ours.Group, theirs.Group)
		case m.RegionMemTypes != nil && m.RegionMemTypes[i] != m.RegionMemTypes[0]:
			return nil, fmt.Errorf("regions of several kinds of memory are not supported yet")
		}
		theirs.Group = ours.Group
		rank.regions = append(rank.regions, c.wholeBlocks(i, theirs, blockLen))
	}
	var err error
	if rank.mapping, err = blocks.NewMapping(c.cache().regions, rank.regions); err != nil {
		return nil, err
	}
	if m.RegionMemTypes != nil {
		rank.mem = nixl.DRAM
		if m.RegionMemTypes[0] == memName(nixl.VRAM) {
			rank.mem = nixl.VRAM
		}
	}
	return rank, nil
}

// remoteRegion reads one region of a peer's description, which may be anything.
func remoteRegion(m *notify.AgentMetadata, i int) (r blocks.Region, blockLen uint64, err error) {
	numBlocks := m.NumBlocks
	if m.RegionNumBlocks != nil {
		if len(m.RegionNumBlocks) != len(m.BaseAddrs) {
			return r, 0, fmt.Errorf("%d block counts for %d regions", len(m.RegionNumBlocks), len(m.BaseAddrs))
		}
		numBlocks = m.RegionNumBlocks[i]
	}
	r = blocks.Region{Base: m.BaseAddrs[i], Stride: m.BlockStrides[i]}
	blockLen = m.BlockLens[i]
	if m.RegionGroupIDs != nil {
		if len(m.RegionGroupIDs) != len(m.BaseAddrs) {
			return r, 0, fmt.Errorf("%d group ids for %d regions", len(m.RegionGroupIDs), len(m.BaseAddrs))
		}
		r.Group = m.RegionGroupIDs[i]
	}
	if m.RegionMemTypes != nil && len(m.RegionMemTypes) != len(m.BaseAddrs) {
		return r, 0, fmt.Errorf("%d memory types for %d regions", len(m.RegionMemTypes), len(m.BaseAddrs))
	}
	switch {
	case numBlocks < 1 || numBlocks > 1<<31:
		return r, 0, fmt.Errorf("%d blocks", numBlocks)
	case r.Stride < blockLen || r.Stride > 1<<40:
		return r, 0, fmt.Errorf("blocks of %d bytes, %d bytes apart", blockLen, r.Stride)
	case r.Base > 1<<63 || uint64(numBlocks)*r.Stride > 1<<63-r.Base:
		return r, 0, fmt.Errorf("%d blocks of %d bytes at %#x wrap around", numBlocks, r.Stride, r.Base)
	}
	r.NumBlocks = uint32(numBlocks)
	return r, blockLen, nil
}
