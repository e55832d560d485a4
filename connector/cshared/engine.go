package main

// #include "abi.h"
import "C"

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"unsafe"

	"github.com/nixlpush/nixlpush/connector"
	"github.com/nixlpush/nixlpush/sidechannel"
)

// procs sets Go's GOMAXPROCS once: the first engine of a process decides.
var procs sync.Once

//export nixlpush_engine_open
func nixlpush_engine_open(options *C.const_options, engine *C.nixlpush_handle, err *C.nixlpush_error) C.int32_t {
	return call(err, func() (int, error) {
		var a arguments
		a.require("engine", unsafe.Pointer(engine))
		if a.err != nil {
			return 0, a.err
		}
		*engine = 0
		s, err := optionsIn(options)
		if err != nil {
			return 0, err
		}
		e, err := openEngine(s)
		if err != nil {
			return 0, err
		}
		*engine = C.nixlpush_handle(handles.add(e))
		return 0, nil
	})
}

// openEngine puts an engine on a NIXL agent of its own.
func openEngine(s settings) (*connector.Engine, error) {
	ring, err := logs()
	if err != nil {
		return nil, err
	}
	procs.Do(func() { runtime.GOMAXPROCS(s.maxProcs) })
	transport, err := openTransport(s.nixl)
	if err != nil {
		return nil, withCode(C.NIXLPUSH_ENIXL, err)
	}
	e, err := connector.Open(s.engine, transport, fetch, slog.New(ring.Handler()))
	if err != nil {
		return nil, errors.Join(err, transport.Close())
	}
	return e, nil
}

// fetch is sidechannel.Fetch as the engine calls it.
func fetch(ctx context.Context, host string, port, ppRank, tpRank int) ([]byte, error) {
	metadata, _, err := sidechannel.Fetch(ctx, host, port, ppRank, tpRank)
	return metadata, err
}

//export nixlpush_engine_close
func nixlpush_engine_close(engine C.nixlpush_handle, err *C.nixlpush_error) C.int32_t {
	return observe(err, func() (int, error) {
		e, err := remove[*connector.Engine](&handles, uint64(engine))
		if err != nil {
			return 0, err
		}
		return 0, withCode(C.NIXLPUSH_ENIXL, e.Close())
	})
}

//export nixlpush_engine_register
func nixlpush_engine_register(engine C.nixlpush_handle, layout *C.const_layout, err *C.nixlpush_error) C.int32_t {
	return call(err, func() (int, error) {
		e, err := lookUp[*connector.Engine](&handles, uint64(engine))
		if err != nil {
			return 0, err
		}
		l, err := layoutIn(layout)
		if err != nil {
			return 0, err
		}
		return 0, withCode(C.NIXLPUSH_ENIXL, e.Register(l))
	})
}

//export nixlpush_engine_metadata
func nixlpush_engine_metadata(engine C.nixlpush_handle, buf unsafe.Pointer, capacity C.uint64_t, length *C.uint64_t, err *C.nixlpush_error) C.int32_t {
	return call(err, func() (int, error) {
		e, err := lookUp[*connector.Engine](&handles, uint64(engine))
		if err != nil {
			return 0, err
		}
		metadata, err := e.Metadata()
		if err != nil {
			return 0, withCode(C.NIXLPUSH_ENIXL, err)
		}
		return 0, bytesOut(metadata, buf, capacity, length)
	})
}

//export nixlpush_engine_dump
func nixlpush_engine_dump(engine C.nixlpush_handle, buf unsafe.Pointer, capacity C.uint64_t, length *C.uint64_t, err *C.nixlpush_error) C.int32_t {
	return call(err, func() (int, error) {
		e, err := lookUp[*connector.Engine](&handles, uint64(engine))
		if err != nil {
			return 0, err
		}
		text, err := e.Dump()
		if err != nil {
			return 0, err
		}
		return 0, bytesOut(text, buf, capacity, length)
	})
}

//export nixlpush_submit
func nixlpush_submit(engine C.nixlpush_handle, step *C.const_step, err *C.nixlpush_error) C.int32_t {
	return call(err, func() (int, error) {
		e, err := lookUp[*connector.Engine](&handles, uint64(engine))
		if err != nil {
			return 0, err
		}
		s, err := stepIn(step)
		if err != nil {
			return 0, err
		}
		return 0, e.Submit(s)
	})
}

//export nixlpush_event_fd
func nixlpush_event_fd(engine C.nixlpush_handle, err *C.nixlpush_error) C.int32_t {
	return observe(err, func() (int, error) {
		e, err := lookUp[*connector.Engine](&handles, uint64(engine))
		if err != nil {
			return 0, err
		}
		return e.EventFD(), nil
	})
}

//export nixlpush_poll
func nixlpush_poll(engine C.nixlpush_handle, events *C.nixlpush_event, capacity, eventSize C.uint64_t, err *C.nixlpush_error) C.int32_t {
	return observe(err, func() (int, error) {
		e, err := lookUp[*connector.Engine](&handles, uint64(engine))
		if err != nil {
			return 0, err
		}
		return pollInto(e, events, capacity, eventSize)
	})
}

//export nixlpush_engine_stats
func nixlpush_engine_stats(engine C.nixlpush_handle, stats *C.nixlpush_stats, err *C.nixlpush_error) C.int32_t {
	return observe(err, func() (int, error) {
		e, err := lookUp[*connector.Engine](&handles, uint64(engine))
		if err != nil {
			return 0, err
		}
		return 0, statsOut(stats, e.Stats())
	})
}
