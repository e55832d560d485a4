package nixl_test

import (
	"testing"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest/conformance"
)

// TestConformance runs the cases between two processes, over each way that UCX has on
// one machine. UCX reads the variable when an agent is made.
func TestConformance(t *testing.T) {
	for _, c := range []struct {
		transports string
		config     nixl.Config
		progress   string
	}{
		{transports: "tcp,shm,self"},
		{transports: "tcp,self"},
		{transports: "tcp,self", config: withThread, progress: " with progress thread"},
	} {
		t.Run(c.transports+c.progress, func(t *testing.T) {
			t.Setenv("UCX_TLS", c.transports)
			t.Setenv(progressVariable, c.progress)
			start := func(t *testing.T) conformance.Target { return startTarget(t, "target") }
			conformance.Run(t, func(t *testing.T) conformance.Pair {
				return conformance.Pair{
					Initiator:   openOrSkip(t, c.config),
					Target:      start(t),
					StartTarget: start,
					Pending:     c.transports == "tcp,self" && c.progress == "",
				}
			})
		})
	}
}
