package notify

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind says what a notification is.
type Kind uint8

const (
	// KindUnknown is a message of a kind that this version does not know. Ignore it.
	KindUnknown      Kind = iota
	KindRegistration      // D tells P which blocks to write into
	KindHeartbeat         // D tells P which requests it still waits for
	KindCompletion        // P tells D that all its bytes of a request have landed

	// Between nixlpush engines only, see the functions that encode them.
	KindDone
	KindWriting
	KindCancel
	KindCancelled
	KindFailed
)

const (
	registrationPrefix = "PUSH_REG:"
	heartbeatPrefix    = "HB:"
)

// Message is a decoded notification. Its strings and slices belong to the receiver.
type Message struct {
	Kind         Kind
	Registration *Registration // KindRegistration
	IDs          []string      // KindHeartbeat: see [LeaseNames]; never empty strings
	RequestID    string        // KindCompletion: D's id, as it stood in the registration
	TPSize       int           // KindCompletion, KindDone: tensor parallel size of P
	Epoch        uint64        // of the registration; from KindDone on
	Reason       string        // KindFailed: for people
}

// prefixed are the kinds that a prefix tells.
var prefixed = []struct {
	kind   Kind
	prefix string
	name   string
	decode func(body []byte) (Message, error)
}{
	{KindRegistration, registrationPrefix, "registration", decodeRegistrationMessage},
	{KindHeartbeat, heartbeatPrefix, "heartbeat", decodeHeartbeatMessage},
	{KindDone, donePrefix, "end of a WRITE", decodeDone},
	{KindWriting, writingPrefix, "begin of a WRITE", decodeEpoch},
	{KindCancel, cancelPrefix, "cancel", decodeEpoch},
	{KindCancelled, cancelledPrefix, "answer to a cancel", decodeEpoch},
	{KindFailed, failPrefix, "failure", decodeFailed},
}

// Decode reads one notification. An error means that the payload is malformed; the
// caller drops it and goes on.
func Decode(payload []byte) (Message, error) {
	if len(payload) > MaxMessage {
		return Message{}, fmt.Errorf("notification of %d bytes, limit is %d", len(payload), MaxMessage)
	}
	for _, p := range prefixed {
		body, ok := bytes.CutPrefix(payload, []byte(p.prefix))
		if !ok {
			continue
		}
		m, err := p.decode(body)
		if err != nil {
			return Message{}, fmt.Errorf("decode %s: %w", p.name, err)
		}
		m.Kind = p.kind
		return m, nil
	}
	return decodeCompletion(payload)
}

func decodeRegistrationMessage(body []byte) (Message, error) {
	r, err := decodeRegistration(body)
	return Message{Registration: r}, err
}

func decodeHeartbeatMessage(body []byte) (Message, error) {
	ids, err := decodeHeartbeat(body)
	return Message{IDs: ids}, err
}

// Completion encodes the message that P binds to a WRITE: D's request id and P's tensor
// parallel size. The wire cannot tell an id that begins with "HB:" or another prefix from a
// message of that kind; vLLM makes no such ids.
func Completion(requestID string, tpSize int) []byte {
	b := make([]byte, 0, len(requestID)+8)
	b = append(b, requestID...)
	b = append(b, ':')
	return strconv.AppendInt(b, int64(tpSize), 10)
}

// decodeCompletion splits at the last colon: a request id may contain colons.
func decodeCompletion(payload []byte) (Message, error) {
	colon := bytes.LastIndexByte(payload, ':')
	if colon < 0 {
		return Message{}, errors.New("notification of no known kind: it has no colon")
	}
	if _, ok := decimal(payload[colon+1:]); !ok {
		return Message{Kind: KindUnknown}, nil
	}
	id := payload[:colon]
	size, err := parallelSize(payload[colon+1:])
	if err == nil {
		err = checkID(id)
	}
	if err != nil {
		return Message{}, fmt.Errorf("decode completion: %w", err)
	}
	return Message{Kind: KindCompletion, RequestID: string(id), TPSize: size}, nil
}

func parallelSize(b []byte) (int, error) {
	n, ok := decimal(b)
	if !ok || n < 1 || n > maxParallel {
		return 0, fmt.Errorf("tensor parallel size %.10s is not within 1 and %d", b, maxParallel)
	}
	return n, nil
}

func checkID(id []byte) error {
	switch {
	case len(id) == 0 || len(id) > MaxID:
		return fmt.Errorf("request id of %d bytes, want 1 to %d", len(id), MaxID)
	case !utf8.Valid(id):
		return errUTF8
	}
	return nil
}

// decimal reads an unsigned number of at most nine digits.
func decimal(b []byte) (n int, ok bool) {
	if len(b) == 0 || len(b) > 9 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// Heartbeat encodes the ids of requests whose blocks P shall keep. The wire separates
// ids by commas, so an id that contains one cannot travel and is left out: its lease is
// not renewed. The result is nil if no id is left.
func Heartbeat(ids []string) []byte {
	size := len(heartbeatPrefix)
	for _, id := range ids {
		size += len(id) + 1
	}
	b := append(make([]byte, 0, size), heartbeatPrefix...)
	for _, id := range ids {
		if id == "" || strings.IndexByte(id, ',') >= 0 {
			continue
		}
		if len(b) > len(heartbeatPrefix) {
			b = append(b, ',')
		}
		b = append(b, id...)
	}
	if len(b) == len(heartbeatPrefix) {
		return nil
	}
	return b
}

func decodeHeartbeat(body []byte) ([]string, error) {
	if !utf8.Valid(body) {
		return nil, errUTF8
	}
	n := bytes.Count(body, []byte(",")) + 1
	if n > MaxBeats {
		return nil, fmt.Errorf("%d ids, limit is %d", n, MaxBeats)
	}
	ids := make([]string, 0, n)
	for id := range strings.SplitSeq(string(body), ",") {
		if len(id) > MaxID {
			return nil, fmt.Errorf("request id of %d bytes, limit is %d", len(id), MaxID)
		}
		if id != "" {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
