package connector

import (
	"fmt"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/notify"
)

// check validates a step before anything of it is taken. limits are what block ids are
// below, by group; stages is the pipeline parallel size of this engine.
func (s *Step) check(limits []uint32, stages int) error {
	for i := range s.Expects {
		x := &s.Expects[i]
		err := checkIDs(x.RequestID, x.TransferID, x.RemoteRequestID)
		if err == nil && stages > 1 {
			err = fmt.Errorf("this engine has pipeline parallel size %d: only producers may have stages", stages)
		}
		if err == nil {
			err = x.Producer.check()
		}
		if err == nil && len(x.Blocks) > 0 {
			err = x.Blocks.check(limits, stages)
		}
		if err != nil {
			return fmt.Errorf("%w: expect %d (%.64q): %w", ErrInvalid, i, x.RequestID, err)
		}
	}
	for i := range s.Offers {
		o := &s.Offers[i]
		err := checkIDs(o.RequestID, o.TransferID)
		if err == nil {
			err = o.Blocks.check(limits, stages)
		}
		if err == nil && o.Lease < 0 {
			err = fmt.Errorf("lease of %v", o.Lease)
		}
		if err != nil {
			return fmt.Errorf("%w: offer %d (%.64q): %w", ErrInvalid, i, o.RequestID, err)
		}
	}
	for i := range s.Declines {
		x := &s.Declines[i]
		if err := checkIDs(x.RequestID, x.TransferID); err != nil {
			return fmt.Errorf("%w: decline %d (%.64q): %w", ErrInvalid, i, x.RequestID, err)
		}
	}
	return nil
}

func checkIDs(requestID string, others ...string) error {
	if requestID == "" {
		return fmt.Errorf("no request id")
	}
	for _, id := range append(others, requestID) {
		if len(id) > notify.MaxID {
			return fmt.Errorf("id of %d bytes, limit is %d", len(id), notify.MaxID)
		}
	}
	return nil
}

// maxSize is how many ranks of one kind an engine may have.
const maxSize = 1 << 16

func (p *Endpoint) check() error {
	p.TPSize, p.PPSize = max(p.TPSize, 1), max(p.PPSize, 1)
	switch {
	case p.EngineID == "" || len(p.EngineID) > notify.MaxID:
		return fmt.Errorf("producer's engine id of %d bytes", len(p.EngineID))
	case p.Host == "" || len(p.Host) > notify.MaxID:
		return fmt.Errorf("producer's host of %d bytes", len(p.Host))
	case p.TPSize > maxSize || p.PPSize > maxSize:
		return fmt.Errorf("producer's tensor parallel size %d and pipeline parallel size %d, at most %d", p.TPSize, p.PPSize, maxSize)
	case p.Port < 1 || p.Port > 65535:
		return fmt.Errorf("producer's port %d is not within 1 and 65535", p.Port)
	}
	return nil
}

// check finds one list for each group and no block id that the cache lacks. A stage of
// several may have no layers of the last groups.
func (b BlockIDs) check(limits []uint32, stages int) error {
	if n := len(b); n > blocks.MaxGroups || n < len(limits) || n > len(limits) && stages == 1 {
		return fmt.Errorf("%d lists of block ids, the cache has %d groups", n, len(limits))
	}
	for g, limit := range limits {
		for _, id := range b[g] {
			if id >= limit {
				return fmt.Errorf("group %d: block id %d is out of range: the cache has %d blocks", g, id, limit)
			}
		}
	}
	return nil
}
