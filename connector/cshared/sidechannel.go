package main

// #include "abi.h"
import "C"

import (
	"log/slog"
	"unsafe"

	"github.com/nixlpush/nixlpush/sidechannel"
)

// maxMetadata bounds what is published for one rank, bytes.
const maxMetadata = 1 << 30

//export nixlpush_sidechannel_open
func nixlpush_sidechannel_open(host *C.const_char, port C.uint32_t, channel *C.nixlpush_handle, err *C.nixlpush_error) C.int32_t {
	return call(err, func() (int, error) {
		var a arguments
		a.require("channel", unsafe.Pointer(channel))
		a.require("host", unsafe.Pointer(host))
		name := a.text("host", (*C.char)(host))
		if port > 65535 {
			a.failf("port is %d, must be at most 65535", port)
		}
		if a.err != nil {
			return 0, a.err
		}
		*channel = 0
		ring, err := logs()
		if err != nil {
			return 0, err
		}
		s, err := sidechannel.Listen(name, int(port), slog.New(ring.Handler()))
		if err != nil {
			return 0, withCode(C.NIXLPUSH_ENETWORK, err)
		}
		*channel = C.nixlpush_handle(handles.add(s))
		return 0, nil
	})
}

//export nixlpush_sidechannel_port
func nixlpush_sidechannel_port(channel C.nixlpush_handle, err *C.nixlpush_error) C.int32_t {
	return observe(err, func() (int, error) {
		s, err := lookUp[*sidechannel.Server](&handles, uint64(channel))
		if err != nil {
			return 0, err
		}
		return s.Port(), nil
	})
}

//export nixlpush_sidechannel_publish
func nixlpush_sidechannel_publish(channel C.nixlpush_handle, ppRank, tpRank C.uint32_t, metadata *C.const_void, length C.uint64_t, err *C.nixlpush_error) C.int32_t {
	return call(err, func() (int, error) {
		s, err := lookUp[*sidechannel.Server](&handles, uint64(channel))
		if err != nil {
			return 0, err
		}
		var a arguments
		a.require("metadata", unsafe.Pointer(metadata))
		data := array(&a, "bytes of metadata", (*byte)(unsafe.Pointer(metadata)), uint64(length), maxMetadata)
		if a.err != nil {
			return 0, a.err
		}
		s.Publish(int(ppRank), int(tpRank), append([]byte(nil), data...))
		return 0, nil
	})
}

//export nixlpush_sidechannel_close
func nixlpush_sidechannel_close(channel C.nixlpush_handle, err *C.nixlpush_error) C.int32_t {
	return observe(err, func() (int, error) {
		s, err := remove[*sidechannel.Server](&handles, uint64(channel))
		if err != nil {
			return 0, err
		}
		return 0, withCode(C.NIXLPUSH_ENETWORK, s.Close())
	})
}
