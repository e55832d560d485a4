package logring

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

func newRing(t *testing.T, lines int) *Ring {
	t.Helper()
	r, err := New(lines)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// drainAll fetches everything with a buffer of so many bytes.
func drainAll(t *testing.T, r *Ring, size int) string {
	t.Helper()
	var all strings.Builder
	buf := make([]byte, size)
	for {
		n, err := r.Drain(buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return all.String()
		}
		all.Write(buf[:n])
	}
}

func TestRecordBecomesLine(t *testing.T) {
	cases := []struct {
		name string
		log  func(*slog.Logger)
		want string
	}{
		{"plain", func(l *slog.Logger) { l.Info("peer connected") }, "20\tpeer connected\n"},
		{"levels", func(l *slog.Logger) { l.Warn("w"); l.Error("e") }, "30\tw\n40\te\n"},
		{"below the level", func(l *slog.Logger) { l.Debug("d") }, ""},
		{"attributes", func(l *slog.Logger) { l.Info("sent", "bytes", 12, "to", "d 1") }, "20\tsent bytes=12 to=\"d 1\"\n"},
		{"with", func(l *slog.Logger) { l.With("rank", 3).Info("up") }, "20\tup rank=3\n"},
		{"group", func(l *slog.Logger) { l.WithGroup("a").With("b", 1).Info("m", slog.Group("c", "d", 2)) }, "20\tm a.b=1 a.c.d=2\n"},
		{"line break in a value", func(l *slog.Logger) { l.Info("m", "k", "a\nb") }, "20\tm k=\"a\\nb\"\n"},
		{"several lines", func(l *slog.Logger) { l.Error("panic\nstack 1\nstack 2") }, "40\tpanic\n40\tstack 1\n40\tstack 2\n"},
		{"stack", func(l *slog.Logger) { l.Error("panic", "stack", "a()\n\tb.go\n", "value", 1) }, "40\tpanic value=1\n40\ta()\n40\t\tb.go\n"},
		{"not UTF-8", func(l *slog.Logger) { l.Info("a\xffb") }, "20\ta?b\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRing(t, 16)
			c.log(slog.New(r.Handler()))
			if got := drainAll(t, r, 1000); got != c.want {
				t.Errorf("drained %q, want %q", got, c.want)
			}
		})
	}
}

func TestSetLevel(t *testing.T) {
	r := newRing(t, 16)
	log := slog.New(r.Handler())
	r.SetLevel(FromPython(10))
	log.Debug("kept")
	r.SetLevel(FromPython(40))
	log.Warn("lost")
	if got := drainAll(t, r, 100); got != "10\tkept\n" {
		t.Errorf("drained %q", got)
	}
}

func TestLevelsAreInverse(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if got := FromPython(PythonLevel(level)); got != level {
			t.Errorf("%v became %v", level, got)
		}
	}
}

func TestWholeLinesOnly(t *testing.T) {
	r := newRing(t, 16)
	r.Add(slog.LevelInfo, "first\nsecond")
	buf := make([]byte, len("20\tfirst\n")+len("20\tsecond\n")-1)
	n, err := r.Drain(buf)
	if err != nil || string(buf[:n]) != "20\tfirst\n" {
		t.Fatalf("drained %q, %v", buf[:n], err)
	}
	if n, err = r.Drain(buf[:5]); n != 0 || !errors.Is(err, ErrShort) {
		t.Fatalf("a short buffer gave %d, %v", n, err)
	}
	if got := drainAll(t, r, 100); got != "20\tsecond\n" {
		t.Errorf("after a short buffer: %q", got)
	}
}

func TestOldestAreDroppedAndCounted(t *testing.T) {
	r := newRing(t, 3)
	for i := range 10 {
		r.Add(slog.LevelInfo, fmt.Sprint(i))
	}
	want := "30\t7 log lines were dropped: they were not fetched in time\n20\t7\n20\t8\n20\t9\n"
	if got := drainAll(t, r, 100); got != want {
		t.Errorf("drained %q, want %q", got, want)
	}
	r.Add(slog.LevelInfo, "later")
	if got := drainAll(t, r, 100); got != "20\tlater\n" {
		t.Errorf("the loss was told twice: %q", got)
	}
}

func TestLongLineIsCutBetweenCharacters(t *testing.T) {
	r := newRing(t, 3)
	r.Add(slog.LevelInfo, "x"+strings.Repeat("é", MaxLine))
	got := drainAll(t, r, 2*MaxLine)
	if len(got) > MaxLine+len("20\t\n") || len(got) < MaxLine || !utf8.ValidString(got) {
		t.Errorf("%d bytes, valid UTF-8: %v", len(got), utf8.ValidString(got))
	}
}

func TestReadableWhileLinesWait(t *testing.T) {
	r := newRing(t, 3)
	readable := func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(r.FD()), Events: unix.POLLIN}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
	if readable() {
		t.Error("readable while empty")
	}
	r.Add(slog.LevelInfo, "a\nb\nc\nd")
	buf := make([]byte, 70)
	if n, err := r.Drain(buf); n == 0 || err != nil || !readable() {
		t.Errorf("after a part (%q, %v): readable = %v", buf[:n], err, readable())
	}
	drainAll(t, r, 80)
	if readable() {
		t.Error("readable after everything was fetched")
	}
}

// TestConcurrent loses no line between writers and a reader.
func TestConcurrent(t *testing.T) {
	const writers, each = 8, 200
	r := newRing(t, writers*each)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			log := slog.New(r.Handler()).With("writer", w)
			for i := range each {
				log.Info("line", "n", i)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	var all strings.Builder
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		_, _ = io.WriteString(&all, drainAll(t, r, 256))
	}
	if got := strings.Count(all.String(), "\n"); got != writers*each {
		t.Errorf("%d lines, want %d", got, writers*each)
	}
}
