package main

// #include "abi.h"
import "C"

import (
	"errors"
	"sync"
	"unicode/utf8"
	"unsafe"

	"github.com/nixlpush/nixlpush/connector"
)

// errShort: the caller's buffer is too small.
var errShort = errors.New("the buffer is too small")

// maxPoll bounds the events of one poll, so that their number fits the return type.
const maxPoll = 1 << 20

// setError fills the caller's nixlpush_error as far as its struct_size says it reaches.
func setError(err *C.nixlpush_error, code C.int32_t, text string) {
	if err == nil {
		return
	}
	size := min(uintptr(err.struct_size), unsafe.Sizeof(*err))
	if size < unsafe.Offsetof(err.message) {
		return
	}
	err.code = code
	setText(err.message[:size-unsafe.Offsetof(err.message)], text)
}

// setText copies a text, cut between two characters to fit, and a NUL.
func setText(out []C.char, text string) {
	if len(out) == 0 {
		return
	}
	n := min(len(text), len(out)-1)
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), len(out)), text[:n])
	out[n] = 0
}

// bytesOut is the second call of the two-call protocol, or the first if cap is too small.
func bytesOut(data []byte, buf unsafe.Pointer, capacity C.uint64_t, length *C.uint64_t) error {
	var a arguments
	a.require("len", unsafe.Pointer(length))
	if capacity > 0 {
		a.require("buf", buf)
	}
	if a.err != nil {
		return a.err
	}
	*length = C.uint64_t(len(data))
	if uint64(capacity) < uint64(len(data)) {
		return errShort
	}
	if len(data) > 0 {
		copy(unsafe.Slice((*byte)(buf), len(data)), data)
	}
	return nil
}

// batches lend memory to polls, so that a poll does not allocate.
var batches = sync.Pool{New: func() any { return new([64]connector.Event) }}

// pollInto moves events to the caller's array, whose entries are size bytes apart.
func pollInto(e *connector.Engine, out *C.nixlpush_event, capacity, size C.uint64_t) (int, error) {
	var a arguments
	if size < C.sizeof_nixlpush_event || size > maxStruct || size%8 != 0 {
		a.failf("event_size is %d, must be sizeof(nixlpush_event), %d", size, C.sizeof_nixlpush_event)
	}
	if capacity > 0 {
		a.require("events", unsafe.Pointer(out))
	}
	if a.err != nil {
		return 0, a.err
	}
	batch := batches.Get().(*[64]connector.Event)
	defer batches.Put(batch)
	total, limit := 0, int(min(capacity, maxPoll))
	for total < limit {
		want := batch[:min(limit-total, len(batch))]
		got := e.Poll(want)
		for i := range got {
			setEvent(unsafe.Add(unsafe.Pointer(out), (total+i)*int(size)), int(size), &want[i])
		}
		clear(want[:got])
		total += got
		if got < len(want) {
			break
		}
	}
	return total, nil
}

// setEvent fills the caller's event; what a newer caller has behind it becomes zero.
func setEvent(p unsafe.Pointer, size int, ev *connector.Event) {
	clear(unsafe.Slice((*byte)(p), size))
	out := (*C.nixlpush_event)(p)
	out.tag = C.uint64_t(ev.Tag)
	out.kind = C.uint32_t(ev.Kind)
	out.reason = C.uint32_t(ev.Reason)
	out.bytes = C.uint64_t(ev.Bytes)
	out.descriptors = C.uint64_t(ev.Descriptors)
	out.block_pairs = C.uint64_t(ev.BlockPairs)
	out.post_ns = C.uint64_t(ev.Post)
	out.write_ns = C.uint64_t(ev.Write)
	out.match_ns = C.uint64_t(ev.Match)
	setText(out.message[:], ev.Message)
}

func statsOut(p *C.nixlpush_stats, s connector.Stats) error {
	var a arguments
	a.require("stats", unsafe.Pointer(p))
	if a.err != nil {
		return a.err
	}
	size := p.struct_size
	a.size("nixlpush_stats", size, unsafe.Sizeof(*p))
	if a.err != nil {
		return a.err
	}
	clear(unsafe.Slice((*byte)(unsafe.Pointer(p)), size))
	*p = C.nixlpush_stats{
		struct_size:             size,
		expects:                 C.uint64_t(s.Expects),
		offers:                  C.uint64_t(s.Offers),
		registrations:           C.uint64_t(s.Registrations),
		writes:                  C.uint64_t(s.Writes),
		peers:                   C.uint64_t(s.Peers),
		events:                  C.uint64_t(s.Events),
		goroutines:              C.uint64_t(s.Goroutines),
		heap_bytes:              C.uint64_t(s.HeapBytes),
		offer_first:             C.uint64_t(s.OfferFirst),
		registration_first:      C.uint64_t(s.RegistrationFirst),
		sent:                    C.uint64_t(s.Sent),
		send_failed:             C.uint64_t(s.SendFailed),
		received:                C.uint64_t(s.Received),
		receive_failed:          C.uint64_t(s.ReceiveFailed),
		bytes:                   C.uint64_t(s.Bytes),
		descriptors:             C.uint64_t(s.Descriptors),
		block_pairs:             C.uint64_t(s.BlockPairs),
		failed_transfers:        C.uint64_t(s.FailedTransfers),
		failed_notifications:    C.uint64_t(s.FailedNotifications),
		failed_handshakes:       C.uint64_t(s.FailedHandshakes),
		expired_offers:          C.uint64_t(s.ExpiredOffers),
		notifications_after_end: C.uint64_t(s.NotificationsAfterEnd),
		malformed_notifications: C.uint64_t(s.MalformedNotifications),
		heartbeats_sent:         C.uint64_t(s.HeartbeatsSent),
		heartbeats_received:     C.uint64_t(s.HeartbeatsReceived),
		leases_renewed:          C.uint64_t(s.LeasesRenewed),
	}
	for i, n := range s.Failures {
		p.failures[i] = C.uint64_t(n)
	}
	return nil
}
