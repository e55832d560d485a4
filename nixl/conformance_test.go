package nixl_test

import (
	"testing"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest/conformance"
)

// TestConformance runs the cases between two processes, over each way that UCX has on
// one machine. UCX reads the variable when an agent is made.
func TestConformance(t *testing.T) {
	for _, transports := range []string{"tcp,shm,self", "tcp,self"} {
		t.Run(transports, func(t *testing.T) {
			t.Setenv("UCX_TLS", transports)
			conformance.Run(t, func(t *testing.T) conformance.Pair {
				initiator := openOrSkip(t, nixl.Config{})
				start := func(t *testing.T) conformance.Target { return startTarget(t, "target") }
				return conformance.Pair{
					Initiator:   initiator,
					Target:      start(t),
					StartTarget: start,
					Pending:     transports == "tcp,self",
				}
			})
		})
	}
}
