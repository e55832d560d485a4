package sidechannel

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/notify"
)

// TestMain fails the run if a goroutine of this package outlives the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leftGoroutines(); left != "" && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left behind:\n"+left)
		code = 1
	}
	os.Exit(code)
}

func leftGoroutines() (left string) {
	for range 50 {
		buf := make([]byte, 1<<20)
		left = ""
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "sidechannel.(*") {
				left += g + "\n\n"
			}
		}
		if left == "" {
			return ""
		}
		time.Sleep(20 * time.Millisecond)
	}
	return left
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(entries)
}

// eventually waits for a condition that other goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("did not happen: %s", what)
}

// logs collects log lines.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

var discard = slog.New(slog.DiscardHandler)

var thePayload = notify.Payload{CompatHash: "hash", AgentMetadata: bytes.Repeat([]byte("m"), 1000)}.Encode()

// serve starts a server that has rank (0, 0) on a free port of 127.0.0.1.
func serve(t *testing.T) (*Server, *logs) {
	t.Helper()
	lines := &logs{}
	s, err := Listen("127.0.0.1", 0, slog.New(slog.NewTextHandler(lines, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.Publish(0, 0, thePayload)
	return s, lines
}

func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// answers fails the test unless the server still serves rank (0, 0).
func answers(t *testing.T, s *Server) {
	t.Helper()
	got, _, err := Fetch(brief(t), "127.0.0.1", s.Port(), 0, 0)
	if err != nil || !bytes.Equal(got, thePayload) {
		t.Fatalf("the server does not answer any more: %v", err)
	}
}
