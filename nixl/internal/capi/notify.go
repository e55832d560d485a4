package capi

/*
#include <stdlib.h>
#include "capi.h"

// No function of NIXL calls back into Go, and the helpers keep no pointer.
#cgo noescape capi_notify
#cgo nocallback capi_notify
#cgo noescape capi_drain
#cgo nocallback capi_drain
*/
import "C"

import (
	"encoding/binary"
	"unsafe"
)

// Notify sends a message to a loaded peer.
func (a Agent) Notify(name string, payload []byte) Status {
	return Status(C.capi_notify(a.table, a.agent, cstr(name), pointer(payload), C.size_t(len(payload))))
}

// Drain calls each for every notification that has arrived, in the order of arrival
// within one sender. The payload is the receiver's to keep.
func (a Agent) Drain(each func(agent string, payload []byte)) Status {
	var data unsafe.Pointer
	var n C.size_t
	status := C.capi_drain(a.table, a.agent, &data, &n)
	deliver(data, n, each)
	return Status(status)
}

// deliver unpacks and frees a buffer of capi_drain.
func deliver(data unsafe.Pointer, n C.size_t, each func(agent string, payload []byte)) {
	if data == nil {
		return
	}
	defer C.free(data)
	for rest := unsafe.Slice((*byte)(data), int(n)); len(rest) > 0; {
		nameLen := binary.NativeEndian.Uint64(rest)
		payloadLen := binary.NativeEndian.Uint64(rest[8:])
		rest = rest[16:]
		name := string(rest[:nameLen])
		payload := make([]byte, payloadLen)
		copy(payload, rest[nameLen:])
		rest = rest[nameLen+payloadLen:]
		each(name, payload)
	}
}
