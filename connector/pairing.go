package connector

import (
	"fmt"
	"math"
	"strings"

	"github.com/nixlpush/nixlpush/blocks"
)

// fineGrained is how many copies a mebibyte may take before the log says so.
const fineGrained = 64

// maxRanks of a peer that one rank deals with.
const maxRanks = 1 << 10

// ranksWith says how the ranks of this engine and of a peer deal with each other.
func (e *Engine) ranksWith(peer peerKey) blocks.Ranks {
	if peer.consumer {
		return blocks.Ranks{SrcTP: e.cfg.TPSize, SrcPP: e.cfg.PPSize, DstTP: peer.tpSize}
	}
	return blocks.Ranks{SrcTP: peer.tpSize, SrcPP: peer.ppSize, DstTP: e.cfg.TPSize}
}

// address of a rank within an engine.
type address struct{ pp, tp int }

func (a address) String() string { return fmt.Sprintf("(pp %d, tp %d)", a.pp, a.tp) }

// partners is which ranks of a peer this rank deals with.
func (e *Engine) partners(peer peerKey) ([]address, error) {
	ranks := e.ranksWith(peer)
	if err := ranks.Check(e.ours.headsOf()...); err != nil {
		return nil, err
	}
	unequal := ranks.SrcTP != ranks.DstTP || ranks.SrcPP > 1
	if unequal && !e.ours.described() {
		return nil, fmt.Errorf("tensor parallel sizes %d and %d of producer and consumer, %d stages: with unequal sizes it must be described what is in a block",
			ranks.SrcTP, ranks.DstTP, ranks.SrcPP)
	}
	tps := ranks.Producers(e.cfg.TPRank)
	if peer.consumer {
		tps = ranks.Consumers(e.cfg.TPRank)
	}
	if n := len(tps) * peer.ppSize; n > maxRanks {
		return nil, fmt.Errorf("%d of its ranks deal with this one, at most %d may", n, maxRanks)
	}
	var list []address
	for pp := range peer.ppSize {
		for _, tp := range tps {
			list = append(list, address{pp, tp})
		}
	}
	return list, nil
}

// latent begins the names of components of MLA.
const latent = "latent"

// stockWrites checks that a producer that runs vLLM's connector writes all that is ours. With
// fewer ranks than we have, it writes to one of those that hold the same head, but for MLA.
func (e *Engine) stockWrites(ranks blocks.Ranks) error {
	for _, r := range e.ours.regions {
		for _, p := range r.Parts {
			if r.Tokens > 0 && ranks.SrcTP < ranks.DstTP && ranks.DstTP > int(p.HeadsOf) && !strings.HasPrefix(p.Component, latent) {
				return fmt.Errorf("%d ranks hold %d heads of %.64s here, and vLLM's connector writes a head to one rank only, from %d ranks",
					ranks.DstTP, p.HeadsOf, p.Component, ranks.SrcTP)
			}
		}
	}
	return nil
}

// pair finds out what goes from whom to whom, and that nothing is missing. Both sides do it,
// each with what it knows.
func (e *Engine) pair(peer peerKey, met []*remoteRank) error {
	ranks, ours := e.ranksWith(peer), e.ours.regions
	if peer.consumer {
		return e.pairConsumers(ranks, ours, met)
	}
	var writers []*blocks.Mapping
	for _, r := range met {
		m, err := blocks.NewMapping(ranks.Share(r.regions, r.tp, e.cfg.TPRank), ours)
		if err != nil {
			return fmt.Errorf("rank %v: %w", r.address, err)
		}
		r.mapping, writers = m, append(writers, m)
	}
	if err := blocks.CheckComplete(ours, writers...); err != nil {
		return fmt.Errorf("%w (ours: %v; rank %v there: %v)", err, ours, met[0].address, met[0].regions)
	}
	return nil
}

// pairConsumers keeps the mapping to each consumer, and checks that it lacks nothing that
// only this rank can write.
func (e *Engine) pairConsumers(ranks blocks.Ranks, ours blocks.Cache, met []*remoteRank) error {
	layers := ours.Layers()
	if e.cfg.PPRank == e.cfg.PPSize-1 { // drafts are numbered behind the model's layers
		last := &layers[len(layers)-1]
		last.N = math.MaxUint32 - last.First
	}
	for _, r := range met {
		m, err := blocks.NewMapping(ranks.Share(ours, e.cfg.TPRank, r.tp), r.regions)
		if err != nil {
			return fmt.Errorf("rank %v: %w", r.address, err)
		}
		wanted := ranks.Wanted(r.regions, e.cfg.TPRank, r.tp, layers)
		if err := blocks.CheckComplete(wanted, m); err != nil {
			return fmt.Errorf("rank %v: %w (ours: %v; theirs: %v)", r.address, err, ours, r.regions)
		}
		r.mapping = m
	}
	return nil
}
