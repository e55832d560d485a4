package nixltest_test

import (
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
	"github.com/nixlpush/nixlpush/nixl/nixltest/conformance"
)

func TestConformance(t *testing.T) {
	t.Run("done within post", func(t *testing.T) {
		conformance.Run(t, func(t *testing.T) conformance.Pair { return pair(t, nixltest.Faults{}) })
	})
	t.Run("done later", func(t *testing.T) {
		slow := nixltest.Faults{Transfer: func(tr nixltest.Transfer) nixltest.Outcome {
			// Long enough that a large transfer is seen in progress.
			return nixltest.Outcome{Delay: time.Millisecond + time.Duration(tr.Bytes)}
		}}
		conformance.Run(t, func(t *testing.T) conformance.Pair {
			p := pair(t, slow)
			p.Pending = true
			return p
		})
	})
}

func pair(t *testing.T, faults nixltest.Faults) conformance.Pair {
	fabric := nixltest.NewFabric(faults)
	startTarget := func(t *testing.T) conformance.Target {
		transport := agent(t, fabric, "target")
		var target *conformance.LocalTarget
		killed := false
		target = conformance.NewLocalTarget(transport, func() { killed = true; fabric.Kill("target") })
		t.Cleanup(func() {
			if !killed {
				target.Close()
			}
		})
		return target
	}
	return conformance.Pair{
		Initiator:   agent(t, fabric, "initiator"),
		Target:      startTarget(t),
		StartTarget: startTarget,
	}
}

// agent makes an agent that must have let go of everything at the end.
func agent(t *testing.T, fabric *nixltest.Fabric, name string) nixl.Transport {
	a, err := fabric.Agent(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}
