package capi

/*
#include <stdlib.h>
#include "capi.h"

// No function of NIXL calls back into Go, and the helpers keep no pointer.
#cgo noescape capi_register
#cgo nocallback capi_register
#cgo noescape capi_deregister
#cgo nocallback capi_deregister
*/
import "C"

import (
	"strings"
	"time"
	"unsafe"
)

// Config is what an agent is created with. ThreadSync is NIXL's: 0 none, 1 strict,
// 2 reader-writer.
type Config struct {
	ProgressThread bool
	ProgressDelay  time.Duration
	ThreadSync     int
	Telemetry      bool
}

// Desc is a range of memory in the layout that C expects.
type Desc struct{ Addr, Len, Dev uint64 }

// Agent is a NIXL agent. Its methods may be called from any thread if the agent was
// created with a thread-sync mode; none after Destroy.
type Agent struct {
	table *C.capi_table
	agent C.capi_agent
}

// Backend is a backend of an agent; it lives as long as the agent.
type Backend struct{ handle C.capi_backend }

// CreateAgent makes an agent without backends.
func (l *Library) CreateAgent(name string, c Config) (Agent, Status) {
	a := Agent{table: l.table}
	config := C.capi_config{
		progress_thread:   C.bool(c.ProgressThread),
		progress_delay_us: C.uint64_t(c.ProgressDelay.Microseconds()),
		thread_sync:       C.int(c.ThreadSync),
		workers:           1,
		listen_delay_us:   100_000,
		telemetry:         C.bool(c.Telemetry),
	}
	status := C.capi_create_agent(l.table, cstr(name), &config, &a.agent)
	return a, Status(status)
}

// Destroy frees the agent and its backends' resources.
func (a Agent) Destroy() Status { return Status(C.capi_destroy_agent(a.table, a.agent)) }

// Plugins lists the names of the backends that can be created.
func (a Agent) Plugins() []string {
	text := C.capi_plugins(a.table, a.agent)
	if text == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(text))
	return strings.Fields(C.GoString(text))
}

// CreateBackend loads a plug-in into the agent.
func (a Agent) CreateBackend(plugin string, params map[string]string) (Backend, Status) {
	var p C.capi_params
	if status := C.capi_create_params(a.table, &p); status != C.CAPI_OK {
		return Backend{}, Status(status)
	}
	defer C.capi_destroy_params(a.table, p)
	for key, value := range params {
		if status := C.capi_params_add(a.table, p, cstr(key), cstr(value)); status != C.CAPI_OK {
			return Backend{}, Status(status)
		}
	}
	var b Backend
	status := C.capi_create_backend(a.table, a.agent, cstr(plugin), p, &b.handle)
	return b, Status(status)
}

// FreeBackend frees the handle, not the backend: that ends with the agent.
func (a Agent) FreeBackend(b Backend) { C.capi_destroy_backend(a.table, b.handle) }

// Register makes memory known to every backend that takes this kind.
func (a Agent) Register(mem int, descs []Desc) Status {
	return Status(C.capi_register(a.table, a.agent, C.int(mem), array(descs), C.size_t(len(descs))))
}

// Deregister undoes a Register of exactly these ranges.
func (a Agent) Deregister(mem int, descs []Desc) Status {
	return Status(C.capi_deregister(a.table, a.agent, C.int(mem), array(descs), C.size_t(len(descs))))
}

// Metadata is what a peer passes to Load.
func (a Agent) Metadata() ([]byte, Status) {
	var data unsafe.Pointer
	var n C.size_t
	if status := C.capi_local_metadata(a.table, a.agent, &data, &n); status != C.CAPI_OK {
		return nil, Status(status)
	}
	defer C.free(data)
	return append([]byte(nil), unsafe.Slice((*byte)(data), int(n))...), OK
}

// Load takes a peer's metadata and returns its name.
func (a Agent) Load(metadata []byte) (string, Status) {
	var name *C.char
	status := C.capi_load_metadata(a.table, a.agent,
		unsafe.Pointer(unsafe.SliceData(metadata)), C.size_t(len(metadata)), &name)
	if status != C.CAPI_OK {
		return "", Status(status)
	}
	defer C.free(unsafe.Pointer(name))
	return C.GoString(name), OK
}

// Unload forgets a peer.
func (a Agent) Unload(name string) Status {
	return Status(C.capi_unload(a.table, a.agent, cstr(name)))
}

// Connect asks the backends to open their connections to a peer.
func (a Agent) Connect(name string) Status {
	return Status(C.capi_connect(a.table, a.agent, cstr(name)))
}

// array is the C view of descs, which holds no pointers to Go memory.
func array(descs []Desc) *C.capi_desc {
	return (*C.capi_desc)(unsafe.Pointer(unsafe.SliceData(descs)))
}
