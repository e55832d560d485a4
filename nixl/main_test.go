package nixl_test

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest/conformance"
)

// Where the tests find NIXL; see openOrSkip.
const (
	wheelRootVariable = "NIXLPUSH_NIXL_WHEEL_ROOT"
	requireVariable   = "NIXLPUSH_REQUIRE_NIXL"
)

// Set for the process that is the other side of a test: its agent's name, and if not
// empty that it has a progress thread.
const (
	targetVariable   = "NIXLPUSH_TEST_TARGET"
	progressVariable = "NIXLPUSH_TEST_PROGRESS"
)

// withThread is the configuration of agents whose progress does not need polling.
var withThread = nixl.Config{ProgressThread: true, ProgressDelay: 100 * time.Millisecond}

func TestMain(m *testing.M) {
	if name := os.Getenv(targetVariable); name != "" {
		serveTarget(name)
	}
	os.Exit(m.Run())
}

// serveTarget is a target process: it ends when its parent closes the pipe or dies.
func serveTarget(name string) {
	var config nixl.Config
	if os.Getenv(progressVariable) != "" {
		config = withThread
	}
	config.Name, config.WheelRoot = name, wheelRoot()
	transport, err := nixl.Open(config)
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	target := conformance.NewLocalTarget(transport, func() {})
	conformance.Serve(pipes{os.NewFile(3, "requests"), os.NewFile(4, "replies")}, target)
	target.Close()
	os.Exit(0)
}

// pipes is a connection made of two pipes. Standard output is not one of them, since
// UCX prints its warnings there.
type pipes struct{ in, out *os.File }

func (p pipes) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p pipes) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p pipes) Close() error                { return errors.Join(p.in.Close(), p.out.Close()) }

// startTarget runs serveTarget in a process of its own, which ends with the test.
func startTarget(t testing.TB, name string) conformance.Target {
	t.Helper()
	childIn, requests := pipe(t)
	replies, childOut := pipe(t)
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), targetVariable+"="+name)
	command.ExtraFiles = []*os.File{childIn, childOut}
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	childIn.Close()
	childOut.Close()
	target := conformance.NewRemoteTarget(pipes{replies, requests}, command.Process.Kill)
	t.Cleanup(func() {
		target.Close()
		command.Process.Kill()
		command.Wait()
	})
	return target
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

func wheelRoot() string { return os.Getenv(wheelRootVariable) }

// openOrSkip opens an agent that the test closes. Without NIXL the test is skipped,
// or fails if the environment says that NIXL must be there.
func openOrSkip(t testing.TB, c nixl.Config) nixl.Transport {
	t.Helper()
	c.WheelRoot = wheelRoot()
	transport, err := nixl.Open(c)
	switch {
	case err == nil:
	case os.Getenv(requireVariable) == "1":
		t.Fatal(err)
	case errors.Is(err, nixl.ErrLibrary):
		t.Skipf("no NIXL: set %s to a site-packages folder with a NIXL wheel: %v", wheelRootVariable, err)
	default:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := transport.Close(); err != nil {
			t.Error(err)
		}
	})
	return transport
}
