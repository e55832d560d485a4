package main

// #include "abi.h"
import "C"

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/nixlpush/nixlpush/connector"
	"github.com/nixlpush/nixlpush/nixl"
)

// defaultMaxProcs keeps Go off the cores of an engine with many.
const defaultMaxProcs = 4

// maxProcs bounds what a caller may ask for: Go takes memory for every one of them.
const maxProcs = 1024

// settings is nixlpush_options in Go.
type settings struct {
	engine   connector.Config
	nixl     nixl.Config
	maxProcs int
}

func optionsIn(p *C.const_options) (settings, error) {
	var a arguments
	a.require("options", unsafe.Pointer(p))
	if a.err != nil {
		return settings{}, a.err
	}
	a.size("nixlpush_options", p.struct_size, unsafe.Sizeof(*p))
	if a.err != nil {
		return settings{}, a.err
	}
	if p.max_procs > maxProcs {
		a.failf("max_procs is %d, must be at most %d", p.max_procs, maxProcs) // Go ends the process over more
	}
	if p.ignore_compat > 1 {
		a.failf("ignore_compat is %d, must be 0 or 1", p.ignore_compat)
	}
	s := settings{
		engine:   engineConfig(&a, p),
		nixl:     nixlConfig(&a, p),
		maxProcs: int(p.max_procs),
	}
	if s.maxProcs == 0 {
		s.maxProcs = min(defaultMaxProcs, runtime.NumCPU())
	}
	return s, a.err
}

func engineConfig(a *arguments, p *C.const_options) connector.Config {
	return connector.Config{
		EngineID:         a.text("engine_id", p.engine_id),
		TPRank:           int(p.tp_rank),
		TPSize:           int(p.tp_size),
		PPRank:           int(p.pp_rank),
		PPSize:           int(p.pp_size),
		Host:             a.text("side_channel_host", p.side_channel_host),
		Port:             int(p.side_channel_port),
		CompatHash:       a.text("compat_hash", p.compat_hash),
		Factors:          params(a, "compat_factors", p.compat_factors, p.num_compat_factors),
		EnforceCompat:    p.ignore_compat == 0,
		Lease:            milliseconds(p.lease_ms),
		ReceiveTimeout:   milliseconds(p.receive_timeout_ms),
		HandshakeTimeout: milliseconds(p.handshake_timeout_ms),
		Heartbeat:        milliseconds(p.heartbeat_ms),
		PeerTTL:          peerTTL(a, p.peer_ttl_ms),
		Writers:          int(p.writers),
		EventsWaiting:    (*atomic.Uint32)(unsafe.Pointer(p.events_waiting)),
	}
}

func nixlConfig(a *arguments, p *C.const_options) nixl.Config {
	c := nixl.Config{
		Library:   a.text("nixl_library", p.nixl_library),
		WheelRoot: a.text("wheel_root", p.wheel_root),
	}
	for _, b := range array(a, "backends", p.backends, uint64(p.num_backends), maxParams) {
		a.require("the name of a backend", unsafe.Pointer(b.name))
		c.Backends = append(c.Backends, nixl.Backend{
			Name:   a.text("the name of a backend", b.name),
			Params: params(a, "params of a backend", b.params, b.num_params),
		})
	}
	return c
}

func params(a *arguments, name string, p *C.nixlpush_param, count C.uint64_t) map[string]string {
	list := array(a, name, p, uint64(count), maxParams)
	if len(list) == 0 {
		return nil
	}
	m := make(map[string]string, len(list))
	for i := range list {
		a.require("a key in "+name, unsafe.Pointer(list[i].key))
		a.require("a value in "+name, unsafe.Pointer(list[i].value))
		m[a.text("a key in "+name, list[i].key)] = a.text("a value in "+name, list[i].value)
	}
	return m
}

func milliseconds(ms C.uint32_t) time.Duration { return time.Duration(ms) * time.Millisecond }

func peerTTL(a *arguments, ms C.int64_t) time.Duration {
	if ms > math.MaxInt64/C.int64_t(time.Millisecond) {
		a.failf("peer_ttl_ms %d is too large", ms)
		return 0
	}
	return time.Duration(max(ms, -1)) * time.Millisecond
}
