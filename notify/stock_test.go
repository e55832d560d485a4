package notify

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestStockReadsOurs gives what we encode, extensions included, to the decoders of an
// installed vLLM. It needs a Python that has one, named by NIXLPUSH_VLLM_PYTHON.
func TestStockReadsOurs(t *testing.T) {
	stock := startStock(t)

	reg := wideRegistration()
	plain := reg.Encode()
	reg.TransferID, reg.TTL = "xfer-1", 30*time.Second
	if got := stock("message", trim(reg.Encode())); !bytes.Equal(got, trim(reg.Encode())) {
		t.Errorf("registration with extension changed: %x", got)
	}
	if got := stock("message", trim(plain)); !bytes.Equal(got, trim(plain)) {
		t.Errorf("registration changed: %x", got)
	}

	for name, m := range map[string]AgentMetadata{"plain": stockMetadata(), "full": fullMetadata()} {
		bare := m.Encode()
		m.Extension = &Extension{Features: []string{"cancel"}, Factors: map[string]string{"model": "m"}}
		if got := stock("metadata", m.Encode()); !bytes.Equal(got, bare) {
			t.Errorf("%s metadata: stock read\n%x\nwant\n%x", name, got, bare)
		}
	}

	payload := Payload{CompatHash: "h", AgentMetadata: []byte("x")}.Encode()
	if got := stock("payload", payload); !bytes.Equal(got, payload) {
		t.Errorf("payload changed: %x", got)
	}
	refusal := stock("payload", Payload{Refusal: "no rank (pp 0, tp 7)"}.Encode())
	if p, err := DecodePayload(refusal); err != nil || !strings.Contains(p.CompatHash, "no rank (pp 0, tp 7)") {
		t.Errorf("stock reads a refusal as %+v, %v", p, err)
	} else if m, err := DecodeAgentMetadata(stock("metadata", p.AgentMetadata)); err != nil || m.EngineID != p.CompatHash {
		t.Errorf("stock reads the metadata of a refusal as %+v, %v", m, err)
	}
	if got := stock("message", Request{PP: 3, TP: 200}.Encode()); !bytes.Equal(got, golden(t, "request_3_200")) {
		t.Errorf("request changed: %x", got)
	}
}

func trim(registration []byte) []byte {
	return bytes.TrimPrefix(registration, []byte(registrationPrefix))
}

// startStock runs testdata/stock.py and returns a function that asks it.
func startStock(t *testing.T) func(kind string, data []byte) []byte {
	python := os.Getenv("NIXLPUSH_VLLM_PYTHON")
	if python == "" {
		t.Skip("NIXLPUSH_VLLM_PYTHON does not name a Python with vLLM 0.32")
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/stock.py")
	cmd.Env = append(os.Environ(), "VLLM_LOGGING_LEVEL=ERROR")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	return func(kind string, data []byte) []byte {
		t.Helper()
		fmt.Fprintf(in, "%s %x\n", kind, data)
		for lines.Scan() {
			if answer, err := hex.DecodeString(lines.Text()); err == nil && len(answer) > 0 {
				return answer
			}
			if strings.HasPrefix(lines.Text(), "error: ") {
				t.Fatalf("stock refuses %s: %s", kind, lines.Text())
			}
		}
		t.Fatalf("stock ended: %v", lines.Err())
		return nil
	}
}
