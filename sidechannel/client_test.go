package sidechannel

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/notify"
)

// impostor accepts one connection and hands it to talk.
func impostor(t *testing.T, talk func(w *wire)) (port int) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		talk(newWire(conn))
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().(*net.TCPAddr).Port
}

// router answers one request with the given frames.
func router(parts ...[]byte) func(w *wire) {
	return func(w *wire) {
		if w.greet("ROUTER", "REQ") == nil {
			w.receive(2, 1<<10)
			w.send(parts...)
			w.in.ReadByte() // until the client has closed
		}
	}
}

func TestFetchFromImpostors(t *testing.T) {
	clock := notify.EncodeClock(1)
	for name, tt := range map[string]struct {
		talk func(w *wire)
		want string
	}{
		"http":          {func(w *wire) { w.conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n")) }, `begins with "HTTP/1.1 400`},
		"closes":        {func(w *wire) {}, "greet: the peer has closed"},
		"closes later":  {func(w *wire) { w.greet("ROUTER", "REQ") }, "rank (pp 0, tp 1): the peer has closed"},
		"wrong socket":  {func(w *wire) { w.greet("PUB", "REQ") }, `socket of type "PUB"`},
		"one frame":     {router(thePayload), "answer of 1 frames"},
		"two frames":    {router(nil, thePayload), "answer of 2 frames"},
		"four frames":   {router(nil, thePayload, clock, clock), "more than 3 frames"},
		"no delimiter":  {router(clock, thePayload, clock), "answer of 3 frames"},
		"junk":          {router(nil, []byte("junk"), clock), "decode handshake payload"},
		"refusal":       {router(nil, notify.Payload{Refusal: "why"}.Encode(), clock), "refused by the peer: why"},
		"huge":          {claims(1 << 62), "message too large"},
		"large, broken": {claims(60 << 20), "the peer has closed"},
	} {
		t.Run(name, func(t *testing.T) {
			port := impostor(t, tt.talk)
			_, _, err := Fetch(brief(t), "127.0.0.1", port, 0, 1)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "127.0.0.1:") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// claims announces a payload of which nothing follows.
func claims(size uint64) func(w *wire) {
	return func(w *wire) {
		w.greet("ROUTER", "REQ")
		w.receive(2, 1<<10)
		w.conn.Write(append([]byte{flagMore, 0}, longHeader(flagMore, size)...))
	}
}

func TestClaimsCostNoMemory(t *testing.T) {
	port := impostor(t, claims(60<<20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Fetch(brief(t), "127.0.0.1", port, 0, 0)
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("%d KB allocated for a payload that never came", grown>>10)
	}
}

func TestFetchRefused(t *testing.T) {
	s, _ := serve(t)
	port := s.Port()
	s.Close()
	start := time.Now()
	_, _, err := Fetch(brief(t), "127.0.0.1", port, 0, 0)
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "no engine listens there") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestFetchTimesOut(t *testing.T) {
	for name, talk := range map[string]func(w *wire){
		"greet":             func(w *wire) { w.in.Discard(1 << 20) },
		"rank (pp 0, tp 1)": func(w *wire) { w.greet("ROUTER", "REQ"); w.in.Discard(1 << 20) },
	} {
		port := impostor(t, talk)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, _, err := Fetch(ctx, "127.0.0.1", port, 0, 1)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), name+": no answer in time") {
			t.Errorf("error %v", err)
		}
	}
}

func TestFetchIsCancelled(t *testing.T) {
	asked := make(chan struct{})
	port := impostor(t, func(w *wire) {
		w.greet("ROUTER", "REQ")
		w.receive(2, 1<<10)
		close(asked)
		w.in.Discard(1 << 20)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	start := time.Now()
	if _, _, err := Fetch(ctx, "127.0.0.1", port, 0, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestFetchUnknownHost(t *testing.T) {
	_, _, err := Fetch(brief(t), "no.such.host.invalid", 5600, 0, 0)
	if err == nil || !strings.Contains(err.Error(), "no.such.host.invalid:5600: connect") {
		t.Errorf("error %v", err)
	}
}
