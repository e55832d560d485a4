package sidechannel

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/notify"
)

// pyzmq returns a Python that has pyzmq: NIXLPUSH_PYTHON, else python3.
func pyzmq(t *testing.T) string {
	t.Helper()
	python := os.Getenv("NIXLPUSH_PYTHON")
	if python == "" {
		python = "python3"
	}
	if out, err := exec.Command(python, "-c", "import zmq").CombinedOutput(); err != nil {
		text := fmt.Sprintf("%s has no pyzmq, name one that has in NIXLPUSH_PYTHON: %v %s", python, err, out)
		if os.Getenv("NIXLPUSH_REQUIRE_PYZMQ") == "1" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	return python
}

// ask runs a REQ client of libzmq against s and returns the frames of each answer.
func ask(t *testing.T, host string, s *Server, messages ...string) (answers [][][]byte) {
	t.Helper()
	args := append([]string{"testdata/client.py", host, strconv.Itoa(s.Port())}, messages...)
	cmd := exec.CommandContext(brief(t), pyzmq(t), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		var frames [][]byte
		for field := range strings.FieldsSeq(line) {
			frame, err := hex.DecodeString(field)
			if err != nil {
				t.Fatalf("libzmq's client: %s", line)
			}
			frames = append(frames, frame)
		}
		answers = append(answers, frames)
	}
	if len(answers) != len(messages) {
		t.Fatalf("%d answers to %d requests", len(answers), len(messages))
	}
	return answers
}

func TestStockClient(t *testing.T) {
	s, _ := serve(t)
	known := hex.EncodeToString(notify.Request{}.Encode())
	answers := ask(t, "localhost", s, known, known)
	for _, frames := range answers {
		if len(frames) != 2 || !bytes.Equal(frames[0], thePayload) {
			t.Fatalf("answer %x", frames)
		}
		if clock, err := notify.DecodeClock(frames[1]); err != nil || len(frames[1]) != 9 || clock < 0 {
			t.Errorf("clock %x: %v, %v", frames[1], clock, err)
		}
	}
}

// What our server refuses reaches a stock client at once, as two frames that its decoder
// takes for a foreign hash.
func TestStockClientIsRefused(t *testing.T) {
	s, _ := serve(t)
	unknown := hex.EncodeToString(notify.Request{PP: 1, TP: 5}.Encode())
	known := hex.EncodeToString(notify.Request{}.Encode())
	answers := ask(t, "127.0.0.1", s, unknown, "beef", known)
	for i, want := range []string{"no rank (pp 1, tp 5) here; have (0,0)", "decode handshake request"} {
		if len(answers[i]) != 2 {
			t.Fatalf("answer of %d frames", len(answers[i]))
		}
		p, err := notify.DecodePayload(answers[i][0])
		if err != nil || !strings.Contains(p.CompatHash, want) {
			t.Errorf("answer %+v, %v; want %q", p, err, want)
		}
	}
	if !bytes.Equal(answers[2][0], thePayload) {
		t.Error("a known rank is not served after refusals")
	}
	for _, size := range []string{"zeros:2000", "zeros:50000000"} {
		p, err := notify.DecodePayload(ask(t, "127.0.0.1", s, size)[0][0])
		if err != nil || !strings.Contains(p.Refusal, "message too large") {
			t.Errorf("%s: answer %+v, %v", size, p, err)
		}
	}
}

func TestStockClientLargePayload(t *testing.T) {
	s, _ := serve(t)
	large := largePayload(8 << 20)
	s.Publish(0, 0, large)
	frames := ask(t, "127.0.0.1", s, hex.EncodeToString(notify.Request{}.Encode()))[0]
	if !bytes.Equal(frames[0], large) {
		t.Errorf("%d bytes arrived, want %d", len(frames[0]), len(large))
	}
}

func TestStockClientIPv6(t *testing.T) {
	s, err := Listen("::1", 0, nil)
	if err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	defer s.Close()
	s.Publish(0, 0, thePayload)
	frames := ask(t, "::1", s, hex.EncodeToString(notify.Request{}.Encode()))[0]
	if !bytes.Equal(frames[0], thePayload) {
		t.Errorf("answer %x", frames)
	}
}

// stockListener runs a ROUTER of libzmq that answers like stock vLLM.
func stockListener(t *testing.T, host string, payload []byte) (port int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), pyzmq(t), "testdata/listener.py", host, hex.EncodeToString(payload))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if port, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
	return port
}

func TestStockListener(t *testing.T) {
	payload := largePayload(50_000)
	port := stockListener(t, "localhost", payload)
	c, err := Dial(brief(t), "localhost", port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		got, _, err := c.Fetch(brief(t), 0, 0)
		if err != nil || !bytes.Equal(got, payload) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
}

// Asked for a rank that it lacks, a stock listener dies with its process's socket open.
func TestStockListenerLacksRank(t *testing.T) {
	port := stockListener(t, "127.0.0.1", thePayload)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, _, err := Fetch(ctx, "127.0.0.1", port, 0, 1)
	if err == nil || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "rank (pp 0, tp 1)") {
		t.Errorf("error %v", err)
	}
}

func TestStockListenerIPv6(t *testing.T) {
	s, err := Listen("::1", 0, nil)
	if err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	s.Close()
	port := stockListener(t, "::1", thePayload)
	if got, _, err := Fetch(brief(t), "::1", port, 0, 0); err != nil || !bytes.Equal(got, thePayload) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
