package nixltest

import (
	"math/rand/v2"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
)

// Chaos makes faults at random. Each probability is from 0 to 1.
type Chaos struct {
	Rand *rand.Rand // the only source of randomness; used with the fabric locked

	Drop      float64       // lose a notification
	Duplicate float64       // deliver it twice
	Lag       time.Duration // longest delay of a notification; they overtake each other

	FailPost float64       // Post returns ErrBackend
	Fail     float64       // a poll returns ErrBackend, nothing has landed
	Stall    float64       // the transfer never ends
	Slow     time.Duration // longest time that a transfer takes
}

// Faults gives the fabric's view of it.
func (c Chaos) Faults() Faults {
	return Faults{Message: c.message, Transfer: c.transfer}
}

func (c Chaos) message(Message) []time.Duration {
	if c.hit(c.Drop) {
		return nil
	}
	delays := []time.Duration{c.upTo(c.Lag)}
	if c.hit(c.Duplicate) {
		delays = append(delays, c.upTo(c.Lag))
	}
	return delays
}

func (c Chaos) transfer(Transfer) Outcome {
	o := Outcome{Delay: c.upTo(c.Slow)}
	if c.hit(c.FailPost) {
		o.PostErr = nixl.ErrBackend
	}
	if c.hit(c.Fail) {
		o.Err = nixl.ErrBackend
	}
	o.Never = c.hit(c.Stall)
	return o
}

func (c Chaos) hit(probability float64) bool { return c.Rand.Float64() < probability }

func (c Chaos) upTo(longest time.Duration) time.Duration {
	if longest <= 0 {
		return 0
	}
	return time.Duration(c.Rand.Int64N(int64(longest) + 1))
}
