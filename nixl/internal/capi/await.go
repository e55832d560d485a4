package capi

/*
#include "await.h"

#cgo noescape capi_await
#cgo nocallback capi_await
*/
import "C"

import (
	"time"
	"unsafe"
)

// Await is Drain, repeated every interval until something has arrived, fd is readable or
// limit has passed. It blocks this thread.
func (a Agent) Await(fd int, interval, limit time.Duration, each func(agent string, payload []byte)) Status {
	var data unsafe.Pointer
	var n C.size_t
	status := C.capi_await(a.table, a.agent, C.int(fd), C.int64_t(interval), C.int64_t(limit), &data, &n)
	deliver(data, n, each)
	return Status(status)
}
