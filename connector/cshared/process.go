package main

// #include "abi.h"
import "C"

import (
	"errors"
	"sync"
	"unsafe"

	"github.com/nixlpush/nixlpush/internal/logring"
)

// keptLines is how many log lines wait for the embedder at most.
const keptLines = 4096

// logs gives the log of the process. It is made at first use: a descriptor made when the
// library is loaded would be shared with children that fork later.
var logs = sync.OnceValues(func() (*logring.Ring, error) { return logring.New(keptLines) })

//export nixlpush_open_handles
func nixlpush_open_handles() C.uint64_t { return C.uint64_t(handles.count()) }

//export nixlpush_log_fd
func nixlpush_log_fd() C.int32_t {
	return observe(nil, func() (int, error) {
		ring, err := logs()
		if err != nil {
			return 0, err
		}
		return ring.FD(), nil
	})
}

//export nixlpush_drain_log
func nixlpush_drain_log(buf *C.char, capacity C.uint64_t) C.int32_t {
	return observe(nil, func() (int, error) {
		var a arguments
		a.require("buf", unsafe.Pointer(buf))
		if a.err != nil {
			return 0, a.err
		}
		ring, err := logs()
		if err != nil {
			return 0, err
		}
		n, err := ring.Drain(unsafe.Slice((*byte)(unsafe.Pointer(buf)), min(capacity, 1<<30)))
		if errors.Is(err, logring.ErrShort) {
			return 0, errShort
		}
		return n, err
	})
}

//export nixlpush_log_level
func nixlpush_log_level(level C.int32_t) C.int32_t {
	return observe(nil, func() (int, error) {
		var a arguments
		if level < 0 || level > 100 {
			a.failf("the log level is %d, must be within 0 and 100", level)
		}
		if a.err != nil {
			return 0, a.err
		}
		ring, err := logs()
		if err != nil {
			return 0, err
		}
		ring.SetLevel(logring.FromPython(int(level)))
		return 0, nil
	})
}
