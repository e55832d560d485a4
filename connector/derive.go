package connector

import (
	"fmt"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/notify"
)

// theirs is the cache of a peer's rank of size ranks: as it describes it or, since a stock
// engine does not say what is in a block, as ours would be with the peer's sizes.
func (c *Layout) theirs(m *notify.AgentMetadata, rank, size int, s scope) (cache, error) {
	ours := cacheOf(c)
	their := cache{mem: ours.mem, device: uint64(m.DeviceID)}
	var err error
	switch {
	case m.AttnBackend != c.AttentionBackend:
		return their, differ("attention backend", c.AttentionBackend, m.AttnBackend)
	case m.DCPSize > 1 || m.PCPSize > 1:
		return their, fmt.Errorf("decode and prefill context parallel sizes are %d and %d there: tokens that are dealt out to ranks cannot be mapped", m.DCPSize, m.PCPSize)
	}
	if their.mem, err = memOf(m, ours.mem); err != nil {
		return their, err
	}
	if m.Extension != nil && m.Extension.Cache != nil && ours.described() {
		their.regions = offTheWire(m.Extension.Cache)
	} else if their.regions, err = c.derive(m, rank, size, s); err != nil {
		return their, err
	}
	if err := their.regions.Check(); err != nil {
		return their, fmt.Errorf("it is described wrongly: %w", err)
	}
	if err := their.regions.CheckRank(rank, size); err != nil {
		return their, fmt.Errorf("it is described wrongly: %w", err)
	}
	return their, nil
}

func differ(what string, ours, theirs any) error {
	return fmt.Errorf("%s is %v here and %v there", what, ours, theirs)
}

// memOf is the kind of memory a peer's regions lie in; it need not say.
func memOf(m *notify.AgentMetadata, ours nixl.Mem) (nixl.Mem, error) {
	for _, name := range m.RegionMemTypes {
		if name != m.RegionMemTypes[0] {
			return 0, fmt.Errorf("regions of several kinds of memory are not supported yet")
		}
	}
	switch {
	case len(m.RegionMemTypes) == 0:
		return ours, nil
	case m.RegionMemTypes[0] == memName(nixl.VRAM):
		return nixl.VRAM, nil
	}
	return nixl.DRAM, nil
}

// scope is what a peer must tell of: everything that is here, and nothing else. Of stages
// each has a part only.
type scope struct{ everything, nothingElse bool }

func (s scope) check(notThere, notHere []string) error {
	switch {
	case s.everything && len(notThere) > 0 && len(notHere) > 0:
		return fmt.Errorf("region %.64s here is not there, and %.64s there is not here", notThere[0], notHere[0])
	case s.everything && len(notThere) > 0:
		return fmt.Errorf("region %.64s is not there", notThere[0])
	case s.nothingElse && len(notHere) > 0:
		return fmt.Errorf("region %.64s there is not here", notHere[0])
	}
	return nil
}
