package notify

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"
)

const requestTag = "get_meta_msg"

// Request asks a side channel for the payload of one rank.
type Request struct {
	PP, TP int
	// Strange is set if the request did not carry vLLM's tag. Stock engines answer it
	// all the same.
	Strange bool
}

// Encode returns the request as stock engines send it.
func (q Request) Encode() []byte {
	b := msgp.AppendArrayHeader(make([]byte, 0, 32), 3)
	b = msgp.AppendBytes(b, []byte(requestTag))
	b = appendInt(b, int64(q.PP))
	return appendInt(b, int64(q.TP))
}

// DecodeRequest reads a request.
func DecodeRequest(b []byte) (Request, error) {
	if len(b) > MaxRequest {
		return Request{}, fmt.Errorf("decode handshake request: %d bytes, limit is %d", len(b), MaxRequest)
	}
	r := reader{b: b}
	var q Request
	if n := r.array(math.MaxInt32); n != 3 && r.err == nil {
		r.failf("array of %d, want [tag, pp rank, tp rank]", n)
	}
	if r.is(msgp.BinType) {
		q.Strange = !bytes.Equal(r.bin(), []byte(requestTag))
	} else {
		q.Strange = true
		r.skip()
	}
	r.at = []byte("pp rank")
	q.PP = int(r.int(0, maxParallel))
	r.at = []byte("tp rank")
	q.TP = int(r.int(0, maxParallel))
	r.end()
	if r.err != nil {
		return Request{}, fmt.Errorf("decode handshake request: %w", r.err)
	}
	return q, nil
}

// EncodeClock returns the second frame of a reply: the seconds on the sender's
// monotonic clock.
func EncodeClock(seconds float64) []byte { return msgp.AppendFloat64(nil, seconds) }

// DecodeClock reads the second frame of a reply.
func DecodeClock(b []byte) (seconds float64, err error) {
	r := reader{b: b}
	seconds = r.number()
	r.end()
	if r.err != nil {
		return 0, fmt.Errorf("decode clock: %w", r.err)
	}
	return seconds, nil
}

// Payload is the first frame of a reply.
type Payload struct {
	CompatHash    string // compare it before looking at the metadata
	AgentMetadata []byte // an encoded [AgentMetadata]

	// Refusal, if not empty, says why there is no metadata to be had. Stock engines know
	// no refusals, so the text also travels in place of the hash and of the engine id:
	// there it ends up in the error that a stock engine raises because they differ.
	Refusal string
}

// Encode returns the payload. Without a refusal it is what a stock engine sends.
func (p Payload) Encode() []byte {
	b := make([]byte, 0, len(p.AgentMetadata)+len(p.CompatHash)+128)
	if p.Refusal == "" {
		b = msgp.AppendMapHeader(b, 2)
		b = appendString(b, "compatibility_hash", p.CompatHash)
		return msgp.AppendBytes(msgp.AppendString(b, "agent_metadata_bytes"), p.AgentMetadata)
	}
	text := "none, handshake refused: " + p.Refusal
	nobody := AgentMetadata{EngineID: text}
	b = msgp.AppendMapHeader(b, 3)
	b = appendString(b, "compatibility_hash", text)
	b = msgp.AppendBytes(msgp.AppendString(b, "agent_metadata_bytes"), nobody.Encode())
	b = msgp.AppendMapHeader(msgp.AppendString(b, extensionKey), 2)
	b = appendNumber(b, "v", extensionVersion)
	return appendString(b, "refusal", p.Refusal)
}

// DecodePayload reads a payload. AgentMetadata aliases b.
func DecodePayload(b []byte) (Payload, error) {
	p, err := decodePayload(b)
	if err != nil {
		return Payload{}, fmt.Errorf("decode handshake payload: %w", err)
	}
	return p, nil
}

func decodePayload(b []byte) (Payload, error) {
	if len(b) > MaxMetadata {
		return Payload{}, fmt.Errorf("%d bytes, limit is %d", len(b), MaxMetadata)
	}
	r := reader{b: b}
	var p Payload
	var has uint
	for n := r.object(math.MaxInt32); n > 0 && r.err == nil; n-- {
		switch string(r.key()) {
		case "compatibility_hash":
			p.CompatHash = r.str(maxFactor)
			has |= 1
		case "agent_metadata_bytes":
			p.AgentMetadata = r.bin()
			has |= 2
		case extensionKey:
			p.Refusal = r.refusal()
		default:
			r.skip()
		}
	}
	r.end()
	if r.err != nil {
		return Payload{}, r.err
	}
	if missing := missingKeys([]string{"compatibility_hash", "agent_metadata_bytes"}, has); missing != "" {
		return Payload{}, errors.New("no " + missing)
	}
	return p, nil
}

func (r *reader) refusal() (text string) {
	for n := r.object(math.MaxInt32); n > 0 && r.err == nil; n-- {
		switch string(r.key()) {
		case "refusal":
			text = r.str(maxFactor)
		default:
			r.skip()
		}
	}
	return text
}
