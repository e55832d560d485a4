// Package eventfd is a flag that poll(2) can wait for: how the library tells its
// embedder that something waits, without a callback.
package eventfd

import (
	"encoding/binary"
	"fmt"

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
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	// It can only fail with EAGAIN, at 2^64-2 unread sets: readable all the same.
	_, _ = unix.Write(f.fd, one[:])
}

// Clear makes it unreadable.
func (f *FD) Clear() {
	var count [8]byte
	// EAGAIN means that it was not set.
	_, _ = unix.Read(f.fd, count[:])
}

// Close frees the descriptor. Nothing may be called after it.
func (f *FD) Close() error { return unix.Close(f.fd) }
