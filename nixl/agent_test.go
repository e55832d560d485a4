package nixl_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
)

func TestUnknownBackendListsTheKnown(t *testing.T) {
	openOrSkip(t, nixl.Config{})
	_, err := nixl.Open(nixl.Config{WheelRoot: wheelRoot(), Backends: []nixl.Backend{{Name: "CARRIER-PIGEON"}}})
	require.ErrorIs(t, err, nixl.ErrNotFound)
	require.ErrorContains(t, err, "CARRIER-PIGEON")
	require.ErrorContains(t, err, "UCX")
}

func TestBadBackendParameter(t *testing.T) {
	openOrSkip(t, nixl.Config{})
	bad := nixl.Backend{Name: "UCX", Params: map[string]string{"ucx_error_handling_mode": "sometimes"}}
	_, err := nixl.Open(nixl.Config{WheelRoot: wheelRoot(), Backends: []nixl.Backend{bad}})
	require.ErrorIs(t, err, nixl.ErrBackend)
	require.ErrorContains(t, err, "create backend UCX")
}

func TestSeveralBackends(t *testing.T) {
	a := openOrSkip(t, nixl.Config{Backends: []nixl.Backend{{Name: "UCX"}, {Name: "POSIX"}}})
	_, d := nixltest.Buffer(4096)
	registration, err := a.Register(nixl.DRAM, []nixl.Desc{d})
	require.NoError(t, err)
	require.NoError(t, registration.Release())
}

func TestNames(t *testing.T) {
	first, second := openOrSkip(t, nixl.Config{}), openOrSkip(t, nixl.Config{})
	require.NotEmpty(t, first.Name())
	require.NotEqual(t, first.Name(), second.Name())
	require.Equal(t, "given", openOrSkip(t, nixl.Config{Name: "given"}).Name())
	_, err := nixl.Open(nixl.Config{WheelRoot: wheelRoot(), Name: "a\x00b"})
	require.ErrorIs(t, err, nixl.ErrInvalid)
	require.ErrorIs(t, first.Notify("a\x00b", nil), nixl.ErrInvalid)
}

func TestStrictSync(t *testing.T) {
	a := openOrSkip(t, nixl.Config{ThreadSync: nixl.SyncStrict})
	_, err := a.Notifications()
	require.NoError(t, err)
}

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// share is the part of a core that the process uses while it waits.
func share(wait time.Duration) float64 {
	before, start := cpu(), time.Now()
	time.Sleep(wait)
	return float64(cpu()-before) / float64(time.Since(start))
}

// The two also prove that our idea of NIXL's config struct is right: a progress
// thread polls without pause.
func TestIdleAgentUsesNoProcessor(t *testing.T) {
	openOrSkip(t, nixl.Config{})
	require.Less(t, share(time.Second), 0.01)
}

func TestProgressThread(t *testing.T) {
	openOrSkip(t, nixl.Config{ProgressThread: true})
	require.Greater(t, share(time.Second), 0.05)
}

func TestSleepingProgressThread(t *testing.T) {
	openOrSkip(t, nixl.Config{ProgressThread: true, ProgressDelay: 100 * time.Millisecond})
	require.Less(t, share(time.Second), 0.02)
}

func TestReopen(t *testing.T) {
	for range 20 {
		openOrSkip(t, nixl.Config{Name: "again"})
	}
}
