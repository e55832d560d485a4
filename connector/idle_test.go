package connector

import (
	"syscall"
	"testing"
	"time"
)

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIdle reports what an engine costs, in percent of a core, while nothing is in
// flight and while it waits for a peer.
func BenchmarkIdle(b *testing.B) {
	for _, waiting := range []bool{false, true} {
		name := "idle"
		if waiting {
			name = "waiting"
		}
		b.Run(name, func(b *testing.B) {
			e := newTestEngine(b, site{}, 7003, realTransport(b), nil)
			if waiting {
				e.submit(b, Step{Offers: []Offer{{Tag: 1, RequestID: "r", Blocks: BlockIDs{{1}}, Lease: time.Hour}}})
			}
			time.Sleep(100 * time.Millisecond)
			for b.Loop() {
				before, start := cpuTime(), time.Now()
				time.Sleep(2 * time.Second)
				b.ReportMetric(100*float64(cpuTime()-before)/float64(time.Since(start)), "%core")
			}
		})
	}
}
