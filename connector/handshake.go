package connector

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	ours := cacheOf(layout)
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
		Extension:          &notify.Extension{Features: features, Factors: e.cfg.Factors, Cache: ours.onTheWire()},
	}
	stock(layout.Stock).tell(&m)
	return notify.Payload{CompatHash: e.cfg.CompatHash, AgentMetadata: m.Encode()}.Encode(), nil
}

func memName(m nixl.Mem) string {
	if m == nixl.VRAM {
		return "VRAM"
	}
	return "DRAM"
}

// shake meets the ranks of a peer that this rank deals with. It blocks; it is called in
// a goroutine of the peer's own and touches nothing of the loop. If it fails it returns
// what it has loaded all the same.
func (e *Engine) shake(ctx context.Context, peer peerKey) ([]*remoteRank, *failure) {
	partners, err := e.partners(peer)
	if err != nil {
		return nil, failf(ReasonIncompatible, "%s cannot be dealt with: %w", peer.engineID, err)
	}
	var met []*remoteRank
	for _, at := range partners {
		rank, fail := e.ask(ctx, peer, at)
		if fail != nil {
			return nil, fail
		}
		met = append(met, rank)
	}
	if err := e.pair(peer, met); err != nil {
		return nil, failf(ReasonIncompatible, "the KV cache of %s does not fit: %w", peer.engineID, err)
	}
	for i, r := range met {
		r.regions = nil // the mapping has what is needed of them
		if r.agent, err = e.nixl.Load(r.metadata); err != nil {
			return met[:i], failf(ReasonUnreachable, "load NIXL metadata of %s, rank %v: %w", peer.engineID, r.address, err)
		}
		if k := slices.IndexFunc(met[:i], func(o *remoteRank) bool { return o.agent == r.agent }); k >= 0 {
			return met[:i], failf(ReasonIncompatible, "ranks %v and %v of %s are the same NIXL agent", met[k].address, r.address, peer.engineID)
		}
		r.metadata = nil
		if per := r.mapping.PerMiB(); per > fineGrained {
			e.log.Info("a peer's cache is laid out so that WRITEs are fine-grained", "peer", peer, "rank", r.address, "descriptors per MiB", int(per))
		}
	}
	return met, nil
}

// ask fetches and checks what one rank of a peer tells about itself.
func (e *Engine) ask(ctx context.Context, peer peerKey, at address) (*remoteRank, *failure) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.HandshakeTimeout)
	defer cancel()
	frame, err := e.fetch(ctx, peer.host, peer.port, at.pp, at.tp)
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
	theirs, err := e.layout.theirs(m, at.tp, peer.tpSize, e.scope(peer))
	if err != nil {
		return nil, failf(ReasonIncompatible, "the KV cache of %s, rank %v, does not fit: %w", peer.engineID, at, err)
	}
	if m.Extension == nil && !peer.consumer {
		if err := e.stockWrites(e.ranksWith(peer)); err != nil {
			return nil, failf(ReasonIncompatible, "the KV cache of %s does not fit: %w", peer.engineID, err)
		}
	}
	return &remoteRank{address: at, cache: theirs, metadata: m.AgentMetadata, hearsWriting: m.Extension.Has(featureWriting)}, nil
}

// scope is what must be told of a peer's rank: a stage has some of a consumer's layers.
func (e *Engine) scope(peer peerKey) scope {
	if peer.consumer {
		return scope{everything: true, nothingElse: e.cfg.PPSize == 1}
	}
	return scope{everything: peer.ppSize == 1, nothingElse: true}
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
