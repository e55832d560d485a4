//go:build nixlpush_test

package main

// #include "abi.h"
// #include "bomb.h"
import "C"

import (
	"sync/atomic"

	"github.com/nixlpush/nixlpush/nixl"
)

// The places where the library can be made to panic, for tests of what the host sees.
const (
	inExport    = 1
	inLoop      = 2
	inWriter    = 3
	inHandshake = 4
)

// armed is the place of the next panic; 0: none.
var armed atomic.Uint32

// explode panics if the place is armed, once.
func explode(place uint32) {
	if armed.CompareAndSwap(place, 0) {
		panic("a test has armed this panic")
	}
}

//export nixlpush_test_panic
func nixlpush_test_panic(place C.uint32_t) C.int32_t {
	return call(nil, func() (int, error) {
		armed.Store(uint32(place))
		explode(inExport)
		return 0, nil
	})
}

// bomb is a Transport that panics on demand in the goroutines that use it.
type bomb struct{ nixl.Transport }

func openTransport(c nixl.Config) (nixl.Transport, error) {
	t, err := nixl.Open(c)
	if err != nil {
		return nil, err
	}
	return bomb{t}, nil
}

func (b bomb) Notifications() ([]nixl.Notification, error) {
	explode(inLoop)
	return b.Transport.Notifications()
}

func (b bomb) Create(op nixl.Op, mem nixl.Mem, local []nixl.Desc, remoteMem nixl.Mem, remote []nixl.Desc, agent string, notif []byte) (nixl.Request, error) {
	explode(inWriter)
	return b.Transport.Create(op, mem, local, remoteMem, remote, agent, notif)
}

func (b bomb) Load(metadata []byte) (string, error) {
	explode(inHandshake)
	return b.Transport.Load(metadata)
}
