package sidechannel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/notify"
)

func TestFetchRanks(t *testing.T) {
	s, _ := serve(t)
	large := largePayload(8 << 20)
	s.Publish(1, 2, large)
	c, err := Dial(brief(t), "127.0.0.1", s.Port())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		for want, r := range map[*[]byte]rank{&thePayload: {0, 0}, &large: {1, 2}} {
			got, rtt, err := c.Fetch(brief(t), r.pp, r.tp)
			if err != nil || !bytes.Equal(got, *want) || rtt <= 0 {
				t.Fatalf("rank %s: %d bytes, %v, %v", r, len(got), rtt, err)
			}
		}
	}
}

func TestPublishReplaces(t *testing.T) {
	s, _ := serve(t)
	mine := largePayload(10)
	s.Publish(0, 0, mine)
	want := bytes.Clone(mine)
	clear(mine) // the server has its own copy
	if got, _, err := Fetch(brief(t), "127.0.0.1", s.Port(), 0, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%x, %v", got, err)
	}
}

func TestUnknownRank(t *testing.T) {
	s, lines := serve(t)
	c, err := Dial(brief(t), "127.0.0.1", s.Port())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _, err = c.Fetch(brief(t), 0, 7)
	if !errors.Is(err, ErrRefused) {
		t.Fatalf("error %v, want ErrRefused", err)
	}
	for _, part := range []string{fmt.Sprintf("127.0.0.1:%d", s.Port()), "rank (pp 0, tp 7)", "have (0,0)"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
	if !strings.Contains(lines.String(), "no rank (pp 0, tp 7) here") {
		t.Errorf("log: %s", lines)
	}
	if _, _, err := c.Fetch(brief(t), 0, 0); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
	for tp := range 40 {
		s.Publish(1, tp, thePayload)
	}
	if _, _, err = c.Fetch(brief(t), 9, 9); !strings.Contains(err.Error(), "(0,0), (1,0), (1,1)") ||
		!strings.Contains(err.Error(), "and 25 more") {
		t.Errorf("error %v", err)
	}
}

func TestNothingPublished(t *testing.T) {
	s, err := Listen("127.0.0.1", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, _, err := Fetch(brief(t), "127.0.0.1", s.Port(), 0, 0); err == nil || !strings.Contains(err.Error(), "have none yet") {
		t.Errorf("error %v", err)
	}
}

func TestPortInUse(t *testing.T) {
	s, _ := serve(t)
	_, err := Listen("127.0.0.1", s.Port(), nil)
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("error %v", err)
	}
	for _, part := range []string{fmt.Sprintf("127.0.0.1:%d", s.Port()), "VLLM_NIXL_SIDE_CHANNEL_PORT"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
}

func TestBadHosts(t *testing.T) {
	for host, want := range map[string]string{
		"":                     "no host",
		"203.0.113.7":          "VLLM_NIXL_SIDE_CHANNEL_HOST",
		"no.such.host.invalid": "no such host",
	} {
		if _, err := Listen(host, 0, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", host, err)
		}
	}
}

func TestHosts(t *testing.T) {
	for _, tt := range []struct{ listen, fetch string }{
		{"localhost", "127.0.0.1"}, // as libzmq binds it
		{"localhost", "localhost"},
		{"127.0.0.1", "localhost"},
		{"0.0.0.0", "127.0.0.1"},
		{"*", "localhost"},
		{"::1", "::1"},
		{"::", "::1"},
		{"::", "127.0.0.1"},
	} {
		s, err := Listen(tt.listen, 0, nil)
		if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
			t.Logf("%s: this machine has no IPv6", tt.listen)
			continue
		}
		if err != nil {
			t.Errorf("listen on %s: %v", tt.listen, err)
			continue
		}
		if ip := s.listener.Addr().(*net.TCPAddr).IP; (ip.To4() == nil) != strings.Contains(tt.listen, ":") {
			t.Errorf("%s has bound %s", tt.listen, ip)
		}
		s.Publish(0, 0, thePayload)
		if _, _, err := Fetch(brief(t), tt.fetch, s.Port(), 0, 0); err != nil {
			t.Errorf("listen on %s: %v", tt.listen, err)
		}
		s.Close()
	}
}

func TestRebind(t *testing.T) {
	first, _ := serve(t)
	port := first.Port()
	first.Close()
	before := openFiles(t)
	for i := range 100 {
		s, err := Listen("127.0.0.1", port, nil)
		if err != nil {
			t.Fatalf("time %d: %v", i, err)
		}
		s.Publish(0, 0, thePayload)
		c, err := Dial(brief(t), "127.0.0.1", port)
		if err != nil {
			t.Fatalf("time %d: %v", i, err)
		}
		if _, _, err := c.Fetch(brief(t), 0, 0); err != nil {
			t.Fatalf("time %d: %v", i, err)
		}
		s.Close() // with a connection open
		s.Close()
		c.Close()
	}
	eventually(t, "all files closed", func() bool { return openFiles(t) <= before })
}

// A connection accepted while the server closes is not served.
func TestAdmitAfterClose(t *testing.T) {
	s, _ := serve(t)
	s.Close()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	s.admit(ours)
	theirs.SetDeadline(time.Now().Add(5 * time.Second))
	if n, err := theirs.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

func TestPanicIsContained(t *testing.T) {
	s, lines := serve(t)
	s.run(func() { panic("boom") })
	eventually(t, "panic logged", func() bool { return strings.Contains(lines.String(), "boom") })
	answers(t, s)
}

func TestQuota(t *testing.T) {
	var q quota
	now := time.Unix(1000, 0)
	written := 0
	for range 1000 {
		if ok, _ := q.take(now); ok {
			written++
		}
	}
	if written != quotaLines {
		t.Errorf("%d lines of 1000", written)
	}
	if ok, dropped := q.take(now.Add(quotaPeriod + 1)); !ok || dropped != 1000-quotaLines {
		t.Errorf("next period: %v, %d left out", ok, dropped)
	}
}

func largePayload(n int) []byte {
	return notify.Payload{CompatHash: "hash", AgentMetadata: bytes.Repeat([]byte("l"), n)}.Encode()
}
