package sidechannel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixlpush/nixlpush/notify"
)

func connect(t *testing.T, s *Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", s.Port()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

// greeted is a connection that has done the greeting like a REQ socket.
func greeted(t *testing.T, s *Server) *wire {
	t.Helper()
	w := newWire(connect(t, s))
	if err := w.greet("REQ", "ROUTER"); err != nil {
		t.Fatal(err)
	}
	return w
}

func longHeader(flags byte, size uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{flags | flagLong}, size)
}

// refusal reads an answer and returns why the server refuses.
func refusal(t *testing.T, w *wire) string {
	t.Helper()
	parts, err := w.receive(3, 1<<20)
	if err != nil || len(parts) != 3 {
		t.Fatalf("answer of %d frames, %v", len(parts), err)
	}
	p, err := notify.DecodePayload(parts[1])
	if err != nil || p.Refusal == "" {
		t.Fatalf("no refusal: %+v, %v", p, err)
	}
	return p.Refusal
}

func TestForeignBytes(t *testing.T) {
	s, lines := serve(t)
	oldVersion := greeting("REQ")
	oldVersion[10] = 1
	secure := greeting("REQ")
	copy(secure[12:], "CURVE")
	noReady := append(greeting("REQ"), 0, 1, 'x')
	pub := bytes.Replace(append(greeting("REQ"), ready("REQ")...), []byte("REQ"), []byte("PUB"), 1)
	lies := append(greeting("REQ"), flagCommand, 22)
	lies = append(lies, "\x05READY\x0bSocket-Type\xff\xff\xff\xff"...)
	flags := append(append(greeting("REQ"), ready("REQ")...), 0x80, 0)
	failure := append(greeting("REQ"), flagCommand, 10)
	failure = append(failure, "\x05ERROR\x03bad"...)
	for name, data := range map[string][]byte{
		"begins with \\\"GET / HTTP":        []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"speaks version 1":                  oldVersion,
		"security mechanism \\\"CURVE\\\"":  secure,
		"does not begin with a READY":       noReady,
		"socket of type \\\"PUB\\\"":        pub,
		"has no Socket-Type":                lies,
		"unknown flags 0x80":                flags,
		"refuses the connection: \\\"bad\\": failure,
	} {
		s.quota = quota{}
		conn := connect(t, s)
		conn.Write(data)
		io.Copy(io.Discard, conn) // until the server has closed it
		eventually(t, "log line with "+name, func() bool { return strings.Contains(lines.String(), name) })
		answers(t, s)
	}
}

func TestRandomBytes(t *testing.T) {
	s, _ := serve(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		junk := make([]byte, rng.IntN(300))
		for j := range junk {
			junk[j] = byte(rng.Uint32())
		}
		conn := connect(t, s)
		switch i % 3 {
		case 1:
			conn.Write(greeting("REQ"))
		case 2:
			conn.Write(append(greeting("REQ"), ready("REQ")...))
		}
		conn.Write(junk)
		conn.Close()
	}
	answers(t, s)
	eventually(t, "all sessions ended", func() bool { return sessionCount(s) == 0 })
}

func TestDropAnywhere(t *testing.T) {
	s, _ := serve(t)
	var talk bytes.Buffer
	talk.Write(greeting("REQ"))
	talk.Write(ready("REQ"))
	talk.Write([]byte{flagMore, 0})
	request := notify.Request{}.Encode()
	talk.Write(frameHeader(0, len(request)))
	talk.Write(request)
	for n := range talk.Len() {
		conn := connect(t, s)
		conn.Write(talk.Bytes()[:n])
		conn.Close()
	}
	answers(t, s)
	eventually(t, "all sessions ended", func() bool { return sessionCount(s) == 0 })
}

func sessionCount(s *Server) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions.Len()
}

func TestMalformedRequests(t *testing.T) {
	s, _ := serve(t)
	w := greeted(t, s)
	for _, tt := range []struct {
		parts [][]byte
		want  string
	}{
		{[][]byte{nil, []byte("junk")}, "decode handshake request"},
		{[][]byte{nil, nil}, "decode handshake request"},
		{[][]byte{nil}, "not framed"},
		{[][]byte{[]byte("x"), notify.Request{}.Encode()}, "not framed"},
	} {
		if err := w.send(tt.parts...); err != nil {
			t.Fatal(err)
		}
		if got := refusal(t, w); !strings.Contains(got, tt.want) {
			t.Errorf("%q: refused with %q, want %q", tt.parts, got, tt.want)
		}
	}
	w.send(nil, []byte("\x93\xc4\x03tag\x00\x00")) // answered, as stock does
	if parts, err := w.receive(3, 1<<20); err != nil || !bytes.Equal(parts[1], thePayload) {
		t.Errorf("a request with a strange tag: %q, %v", parts, err)
	}
	w.conn.Write([]byte{flagCommand, 7, 4, 'P', 'I', 'N', 'G', 0, 1}) // a ZMTP 3.1 command is no request
	w.send(nil, notify.Request{}.Encode())
	if parts, err := w.receive(3, 1<<20); err != nil || !bytes.Equal(parts[1], thePayload) {
		t.Errorf("a request after a command: %q, %v", parts, err)
	}
}

func TestOversizedRequests(t *testing.T) {
	s, _ := serve(t)
	many := bytes.Repeat([]byte{flagMore, 0}, 1<<16)
	for name, data := range map[string][]byte{
		"2^62 claimed":   append([]byte{flagMore, 0}, longHeader(0, 1<<62)...),
		"2^64-1 claimed": append([]byte{flagMore, 0}, longHeader(0, 1<<64-1)...),
		"1 MB sent":      append(append([]byte{flagMore, 0}, longHeader(0, 1<<20)...), make([]byte, 1<<20)...),
		"many frames":    many,
		"huge command":   longHeader(flagCommand, 1<<40),
	} {
		t.Run(name, func(t *testing.T) {
			w := greeted(t, s)
			go w.conn.Write(data)
			if got := refusal(t, w); !strings.Contains(got, "message too large") {
				t.Errorf("refused with %q", got)
			}
			if _, err := w.receive(3, 1<<20); err == nil {
				t.Error("the connection is still served")
			}
			answers(t, s)
		})
	}
}

// A thousand idle connections hold neither memory nor places: a newcomer is served.
func TestManyConnections(t *testing.T) {
	s, _ := serve(t)
	files := openFiles(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	conns := make([]net.Conn, 1000)
	for i := range conns {
		conns[i] = connect(t, s)
		if i%2 == 0 {
			conns[i].Write(append(append(greeting("REQ"), ready("REQ")...), longHeader(0, 1000)...))
		}
	}
	answers(t, s)
	if n := sessionCount(s); n > maxSessions {
		t.Errorf("%d sessions", n)
	}
	eventually(t, "dropped connections closed", func() bool {
		return openFiles(t) <= files+len(conns)+maxSessions
	})
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 32<<20 {
		t.Errorf("heap grew by %d MB", grown>>20)
	}
	for _, conn := range conns {
		conn.Close()
	}
	eventually(t, "all sessions ended", func() bool { return sessionCount(s) == 0 })
	eventually(t, "all files closed", func() bool { return openFiles(t) <= files })
}

// Connections that say nothing, or too little, end after a time.
func TestSlowPeers(t *testing.T) {
	talk := append(greeting("REQ"), ready("REQ")...)
	for _, tt := range []struct {
		name  string
		bytes []byte        // sent at once, before
		every time.Duration // a byte of a frame
		deaf  bool          // reads no answer
		want  time.Duration // until the server ends the connection
	}{
		{"silent", nil, 0, false, greetTime},
		{"half a greeting", greeting("REQ")[:30], 0, false, greetTime},
		{"idle", talk, 0, false, requestTime},
		{"dripping", append(talk[:len(talk):len(talk)], longHeader(0, 1000)...), time.Second, false, requestTime},
		{"deaf", append(talk[:len(talk):len(talk)], flagMore, 0, 0, 1, 'x'), 0, true, replyTime},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				c := &session{server: &Server{log: discard}, wire: newWire(ours)}
				start, ended := time.Now(), make(chan time.Duration)
				go func() {
					c.serve()
					ours.Close()
					ended <- time.Since(start)
				}()
				hear := int64(1 << 20)
				if tt.deaf {
					hear = int64(greetingSize + len(ready("ROUTER")))
				}
				go io.CopyN(io.Discard, theirs, hear)
				theirs.Write(tt.bytes)
				for err := error(nil); err == nil && tt.every > 0; _, err = theirs.Write([]byte{0}) {
					time.Sleep(tt.every)
				}
				if got := <-ended; got < tt.want || got > tt.want+time.Second {
					t.Errorf("ended after %v, want %v", got, tt.want)
				}
				theirs.Close()
			})
		})
	}
}
