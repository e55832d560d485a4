package capi

/*
#include "capi.h"

// No function of NIXL calls back into Go, and the helpers keep no pointer.
#cgo noescape capi_prepare
#cgo nocallback capi_prepare
#cgo noescape capi_make
#cgo nocallback capi_make
#cgo noescape capi_create
#cgo nocallback capi_create
#cgo noescape capi_post
#cgo nocallback capi_post
#cgo noescape capi_status
#cgo nocallback capi_status
#cgo noescape capi_get_telemetry
#cgo nocallback capi_get_telemetry
#cgo noescape capi_release
#cgo nocallback capi_release
*/
import "C"

import "unsafe"

// Prepared is a descriptor list that NIXL has validated.
type Prepared struct{ handle C.capi_prepared }

// Request is one transfer.
type Request struct{ handle C.capi_request }

// Lists are what Create fills, kept from one request to the next. The zero value is ready;
// FreeLists ends it. They are not for concurrent use.
type Lists struct{ c C.capi_lists }

// Telemetry of a finished request; times in microseconds.
type Telemetry struct{ PostUs, TransferUs, Bytes, Descriptors uint64 }

// Prepare validates a list of memory of agent name ("": the agent's own).
func (a Agent) Prepare(name string, mem int, descs []Desc) (Prepared, Status) {
	var p Prepared
	status := C.capi_prepare(a.table, a.agent, cstr(name), C.int(mem), array(descs),
		C.size_t(len(descs)), &p.handle)
	return p, Status(status)
}

// ReleasePrepared frees the list.
func (a Agent) ReleasePrepared(p Prepared) Status {
	return Status(C.capi_release_prepared(a.table, a.agent, p.handle))
}

// Make builds a request from entries of two prepared lists; the two index slices
// must be of one length.
func (a Agent) Make(op int, local Prepared, localIdx []int32, remote Prepared, remoteIdx []int32, notif []byte) (Request, Status) {
	var r Request
	status := C.capi_make(a.table, a.agent, C.int(op), local.handle, indices(localIdx),
		remote.handle, indices(remoteIdx), C.size_t(len(localIdx)),
		pointer(notif), C.size_t(len(notif)), &r.handle)
	return r, Status(status)
}

// Create builds a request from two lists, which must be of one length.
func (a Agent) Create(l *Lists, op, mem int, local []Desc, remoteMem int, remote []Desc, name string, notif []byte) (Request, Status) {
	var r Request
	status := C.capi_create(a.table, a.agent, &l.c, C.int(op), C.int(mem), array(local),
		C.int(remoteMem), array(remote), C.size_t(len(local)), cstr(name),
		pointer(notif), C.size_t(len(notif)), &r.handle)
	return r, Status(status)
}

// FreeLists frees what Create has put into the lists.
func (a Agent) FreeLists(l *Lists) { C.capi_free_lists(a.table, &l.c) }

// Post starts the transfer: OK if it is already done, InProgress, or an error.
func (a Agent) Post(r Request) Status { return Status(C.capi_post(a.table, a.agent, r.handle)) }

// Status drives the transfer on: OK when done, InProgress, or an error.
func (a Agent) Status(r Request) Status { return Status(C.capi_status(a.table, a.agent, r.handle)) }

// Telemetry of a request whose status is OK.
func (a Agent) Telemetry(r Request) (Telemetry, Status) {
	var t C.capi_telemetry
	status := C.capi_get_telemetry(a.table, a.agent, r.handle, &t)
	return Telemetry{uint64(t.post_us), uint64(t.transfer_us), uint64(t.bytes), uint64(t.descriptors)}, Status(status)
}

// Release frees a request. NIXL cancels one in progress in a way that is not safe:
// never call it on one.
func (a Agent) Release(r Request) Status {
	return Status(C.capi_release(a.table, a.agent, r.handle))
}

func indices(idx []int32) *C.int { return (*C.int)(unsafe.Pointer(unsafe.SliceData(idx))) }

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
