// Package eventfd is a flag that poll(2) can wait for: how the library tells its
// embedder that something waits, without a callback.
package eventfd

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FD is a flag, readable while it is set. It does not lock: call Set and Clear under the
// lock of what they speak of, or a Clear may undo a Set that came after.
type FD struct{ fd int }

// New makes an unset flag. The descriptor is closed on exec and never blocks.
func New() (*FD, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	return &FD{fd: fd}, nil
}

// Number is the descriptor, to be polled only.
func (f *FD) Number() int { return f.fd }

// Set makes the descriptor readable.
func (f *FD) Set() {
	one := uint64(1)
	// It can only fail with EAGAIN, at 2^64-2 unread sets: readable all the same.
	f.access(unix.SYS_WRITE, &one)
}

// Clear makes it unreadable.
func (f *FD) Clear() {
	var count uint64
	// EAGAIN means that it was not set.
	f.access(unix.SYS_READ, &count)
}

// access reads or writes the counter. Neither ever blocks, so Go's scheduler need not
// hear of it: telling it costs the caller more than the call itself when Go is idle.
func (f *FD) access(call uintptr, count *uint64) {
	_, _, _ = unix.RawSyscall(call, uintptr(f.fd), uintptr(unsafe.Pointer(count)), unsafe.Sizeof(*count))
}

// Close frees the descriptor. Nothing may be called after it.
func (f *FD) Close() error { return unix.Close(f.fd) }
