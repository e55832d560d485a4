package connector

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the run if an engine leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
