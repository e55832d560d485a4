// Package capi calls NIXL's C library, which it loads at run time. It is a thin
// layer: one method per call of NIXL, arrays crossing in one piece, and NIXL's
// status codes as they are. Package nixl gives them their meaning.
package capi

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "capi.h"
*/
import "C"

import (
	"errors"
	"unsafe"
)

// Status is what NIXL's C functions return.
type Status int32

const (
	InProgress         Status = C.CAPI_IN_PROGRESS
	OK                 Status = C.CAPI_OK
	InvalidParam       Status = C.CAPI_INVALID_PARAM
	BackendFailed      Status = C.CAPI_BACKEND
	InvalidState       Status = C.CAPI_INVALID_STATE
	Exception          Status = C.CAPI_EXCEPTION
	NoTelemetry        Status = C.CAPI_NO_TELEMETRY
	NotFound           Status = C.CAPI_NOT_FOUND
	LocalUnregistered  Status = C.CAPI_LOCAL_UNREGISTERED
	RemoteUnregistered Status = C.CAPI_REMOTE_UNREGISTERED
	NoMemory           Status = C.CAPI_NO_MEMORY
)

// Library is a loaded libnixl_capi.so. It stays loaded until the process ends:
// NIXL's backends leave threads and handlers behind that outlive a dlclose.
type Library struct {
	table *C.capi_table // C memory
}

// Load opens the library at path (a bare file name is looked up as the dynamic
// loader does) and resolves every function that is needed.
func Load(path string) (*Library, error) {
	table := (*C.capi_table)(C.calloc(1, C.sizeof_capi_table))
	if table == nil {
		return nil, errors.New("out of memory")
	}
	if text := C.capi_load(cstr(path), table); text != nil {
		defer C.free(unsafe.Pointer(text))
		C.free(unsafe.Pointer(table))
		return nil, errors.New(C.GoString(text))
	}
	return &Library{table}, nil
}

// cstr is s with a NUL at its end, in Go memory: good for the call it is passed to.
func cstr(s string) *C.char {
	b := make([]byte, len(s)+1)
	copy(b, s)
	return (*C.char)(unsafe.Pointer(&b[0]))
}
