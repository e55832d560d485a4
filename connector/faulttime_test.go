package connector

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
)

// refusing is a Transport that makes no WRITE while told so.
type refusing struct {
	nixl.Transport
	now *atomic.Bool
}

func (r refusing) Create(op nixl.Op, mem nixl.Mem, local []nixl.Desc, remoteMem nixl.Mem, remote []nixl.Desc, agent string, notif []byte) (nixl.Request, error) {
	if r.now.Load() {
		return nil, fmt.Errorf("%w: as the test wants it", nixl.ErrBackend)
	}
	return r.Transport.Create(op, mem, local, remoteMem, remote, agent, notif)
}

// BenchmarkFaultToEnd reports how long it takes from a fault until D has its blocks back, over
// real NIXL between two engines of this process, in milliseconds.
func BenchmarkFaultToEnd(b *testing.B) {
	var refuse atomic.Bool
	s := site{}
	p := newTestEngine(b, s, 7011, refusing{realTransport(b), &refuse}, nil)
	d := newTestEngine(b, s, 7012, realTransport(b), nil)
	tag := uint64(0)
	expect := func() {
		tag++
		d.submit(b, Step{Expects: []Expect{{Tag: tag, RequestID: fmt.Sprint("r", tag), Producer: p.endpoint(), Blocks: BlockIDs{{2}}}}})
	}
	registered := func() {
		expect()
		p.until(b, "registered", func(s Stats) bool { return s.Registrations == 1 })
	}
	for _, fault := range []struct {
		name   string
		before func()
		happen func()
	}{
		{"D aborts", registered, func() { d.submit(b, Step{Cancels: []uint64{tag}}) }},
		{"P aborts", registered, func() { p.submit(b, Step{Declines: []Decline{{RequestID: fmt.Sprint("r", tag)}}}) }},
		{"WRITE fails", registered, func() {
			p.submit(b, Step{Offers: []Offer{{Tag: tag, RequestID: fmt.Sprint("r", tag), Blocks: BlockIDs{{1}}}}})
		}},
	} {
		b.Run(fault.name, func(b *testing.B) {
			refuse.Store(fault.name == "WRITE fails")
			var took []time.Duration
			for b.Loop() {
				fault.before()
				began := time.Now()
				fault.happen()
				if ev := d.next(b, 5*time.Second); ev.Kind != ReceiveFailed {
					b.Fatal(errors.New(ev.Message))
				}
				took = append(took, time.Since(began))
				p.Poll(make([]Event, 4))
			}
			slices.Sort(took)
			ms := func(at float64) float64 { return took[int(at*float64(len(took)-1))].Seconds() * 1e3 }
			b.ReportMetric(ms(0.5), "p50-ms")
			b.ReportMetric(ms(0.99), "p99-ms")
		})
	}
}
