package notify

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Messages that only nixlpush engines exchange; feature "epochs". They name a registration by
// the epoch that D gave it and not by the request's id, so that what is said of an older
// registration is not taken for one of a newer one. An epoch is a number that D's agent uses
// once.
const (
	donePrefix      = "DONE:"
	writingPrefix   = "WRITING:"
	cancelPrefix    = "CANCEL:"
	cancelledPrefix = "CANCELLED:"
	failPrefix      = "FAIL:"
)

// MaxReason bounds the text of a failure, in bytes.
const MaxReason = 512

// Done encodes the message that P binds to a WRITE for a registration with an epoch, instead
// of [Completion]; tpSize is P's tensor parallel size.
func Done(epoch uint64, tpSize int) []byte {
	return strconv.AppendInt(append(named(donePrefix, epoch), ':'), int64(tpSize), 10)
}

// Writing encodes the message that announces a WRITE, so that D looks out for its end.
func Writing(epoch uint64) []byte { return named(writingPrefix, epoch) }

// Cancel encodes D's wish not to be written any more. P answers with [Cancelled] when that is so.
func Cancel(epoch uint64) []byte { return named(cancelPrefix, epoch) }

// Cancelled encodes P's promise that no WRITE for the registration is or will be under way.
func Cancelled(epoch uint64) []byte { return named(cancelledPrefix, epoch) }

// Failed encodes P's message that it gives up, with what [Cancelled] promises. Of a long
// reason only the beginning travels.
func Failed(epoch uint64, reason string) []byte {
	if len(reason) > MaxReason {
		reason = reason[:MaxReason]
	}
	return append(append(named(failPrefix, epoch), ':'), strings.ToValidUTF8(reason, "?")...)
}

func named(prefix string, epoch uint64) []byte {
	return strconv.AppendUint(append(make([]byte, 0, len(prefix)+32), prefix...), epoch, 10)
}

// decodeEpoch reads a message that consists of an epoch.
func decodeEpoch(body []byte) (m Message, err error) {
	m.Epoch, err = epoch(body)
	return m, err
}

func decodeDone(body []byte) (m Message, err error) {
	number, size, _ := bytes.Cut(body, []byte(":"))
	if m.Epoch, err = epoch(number); err != nil {
		return m, err
	}
	m.TPSize, err = parallelSize(size)
	return m, err
}

func decodeFailed(body []byte) (m Message, err error) {
	number, reason, _ := bytes.Cut(body, []byte(":"))
	switch {
	case len(reason) > MaxReason+2: // a byte that was not UTF-8 became one that is
		return m, fmt.Errorf("reason of %d bytes, limit is %d", len(reason), MaxReason)
	case !utf8.Valid(reason):
		return m, errUTF8
	}
	m.Reason = string(reason)
	m.Epoch, err = epoch(number)
	return m, err
}

func epoch(b []byte) (uint64, error) {
	n, err := strconv.ParseUint(string(b[:min(len(b), 21)]), 10, 64)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return 0, fmt.Errorf("epoch %.21q is not a number from 1 to 2^63-1", b)
	}
	return n, nil
}
