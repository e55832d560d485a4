package sidechannel

import (
	"bytes"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/notify"
)

// script is a connection whose peer has said all it will ever say.
type script struct {
	net.Conn
	in  bytes.Reader
	out bytes.Buffer
}

func (s *script) Read(p []byte) (int, error)    { return s.in.Read(p) }
func (s *script) Write(p []byte) (int, error)   { return s.out.Write(p) }
func (s *script) SetDeadline(t time.Time) error { return nil }

func scripted(said []byte) *script {
	s := &script{}
	s.in.Reset(said)
	return s
}

func talk(socket string, parts ...[]byte) []byte {
	s := scripted(nil)
	newWire(s).send(parts...)
	return slices.Concat(greeting(socket), ready(socket), s.out.Bytes())
}

// FuzzSession: whatever a peer says, the server ends the connection without a panic.
func FuzzSession(f *testing.F) {
	f.Add(talk("REQ", nil, notify.Request{}.Encode()))
	f.Add(talk("DEALER", nil, []byte("\x93\xc0\x07\x07")))
	f.Add(append(talk("REQ"), longHeader(0, 1<<62)...))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		conn := scripted(said)
		s := &Server{log: discard, ranks: map[rank][]byte{{0, 0}: thePayload}}
		(&session{server: s, wire: newWire(conn)}).serve()
		if n := conn.out.Len(); n > 1<<10+(len(said)+1)*len(thePayload) {
			t.Fatalf("%d bytes said, %d answered", len(said), n)
		}
	})
}

// FuzzClient: whatever a listener says, the client ends with a payload that decodes or
// with an error.
func FuzzClient(f *testing.F) {
	f.Add(talk("ROUTER", nil, thePayload, notify.EncodeClock(1)))
	f.Add(talk("ROUTER", nil, notify.Payload{Refusal: "why"}.Encode(), notify.EncodeClock(1)))
	f.Add(append(talk("ROUTER"), longHeader(0, 1<<62)...))
	f.Fuzz(func(t *testing.T, said []byte) {
		c := &Client{wire: newWire(scripted(said))}
		if c.wire.greet("REQ", "ROUTER", "REP") != nil {
			return
		}
		payload, err := c.ask(0, 0)
		if err == nil {
			_, err = notify.DecodePayload(payload)
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzFrames: messages arrive as they were sent.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{}, []byte("x"), 255)
	f.Add([]byte("a"), []byte{}, 256)
	f.Fuzz(func(t *testing.T, a, b []byte, n int) {
		sent := [][]byte{a, b, bytes.Repeat([]byte("l"), max(0, n)%70000)}
		w := newWire(scripted(nil))
		w.send(sent...)
		out := w.conn.(*script).out.Bytes()
		got, err := newWire(scripted(out)).receive(3, 1<<20)
		if err != nil || !slices.EqualFunc(got, sent, bytes.Equal) {
			t.Fatalf("%q became %q, %v", sent, got, err)
		}
		for cut := range min(len(out), 50) {
			if _, err := newWire(scripted(out[:cut])).receive(3, 1<<20); err != io.EOF && err != io.ErrUnexpectedEOF {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
	})
}
