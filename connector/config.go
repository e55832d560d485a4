package connector

import (
	"fmt"
	"time"
)

// complete checks a Config and fills in the defaults.
func (c *Config) complete() error {
	c.TPSize, c.PPSize = max(c.TPSize, 1), max(c.PPSize, 1)
	switch {
	case c.EngineID == "":
		return fmt.Errorf("%w: no engine id", ErrInvalid)
	case c.Host == "":
		return fmt.Errorf("%w: no side channel host", ErrInvalid)
	case c.Port < 1 || c.Port > 65535:
		return fmt.Errorf("%w: side channel port %d is not within 1 and 65535", ErrInvalid, c.Port)
	case c.TPRank < 0 || c.TPRank >= c.TPSize:
		return fmt.Errorf("%w: tensor parallel rank %d of %d", ErrInvalid, c.TPRank, c.TPSize)
	case c.PPRank < 0 || c.PPRank >= c.PPSize:
		return fmt.Errorf("%w: pipeline rank %d of %d", ErrInvalid, c.PPRank, c.PPSize)
	case c.Writers < 0 || c.Writers > 64:
		return fmt.Errorf("%w: %d writers, want at most 64", ErrInvalid, c.Writers)
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{
		{"lease", &c.Lease, 30 * time.Second},
		{"receive timeout", &c.ReceiveTimeout, 480 * time.Second},
		{"handshake timeout", &c.HandshakeTimeout, 5 * time.Second},
		{"heartbeat interval", &c.Heartbeat, 0},
		{"peer lifetime", &c.PeerTTL, time.Hour},
	} {
		if *d.value == 0 {
			*d.value = d.usual
		}
		if *d.value < 0 && d.value != &c.PeerTTL {
			return fmt.Errorf("%w: %s %v is negative", ErrInvalid, d.name, *d.value)
		}
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = c.Lease / 6 // stock's ratio
	}
	if c.Writers == 0 {
		c.Writers = 2
	}
	return nil
}
