package main

// #include "abi.h"
import "C"

import (
	"errors"
	"fmt"
	"unicode/utf8"
	"unsafe"
)

// Bounds of what a caller may pass, so that a wild number is an error: far above what
// an engine has, far below what would exhaust memory.
const (
	maxText    = 1 << 16 // bytes of a string
	maxParams  = 1 << 10
	maxRegions = 1 << 16 // of a layout, and ranges of memory
	maxParts   = 1 << 12 // of a region
	maxStep    = 1 << 16 // expects, offers or cancels of a step
	maxGroups  = 1 << 10
	maxIDs     = 1 << 24 // block ids of a request
	maxStruct  = 1 << 12 // bytes of a struct of a newer caller
)

// errArgument: an argument is NULL, short, or out of bounds.
var errArgument = errors.New("invalid argument")

// arguments reads what the caller passes. It keeps the first error; after that it reads
// no more and returns zeros.
type arguments struct{ err error }

func (a *arguments) failf(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("%w: %s", errArgument, fmt.Sprintf(format, args...))
	}
}

// require refuses a NULL.
func (a *arguments) require(name string, p unsafe.Pointer) {
	if p == nil {
		a.failf("%s is NULL", name)
	}
}

// zero refuses a reserved field that is not 0.
func (a *arguments) zero(name string, value C.uint32_t) {
	if value != 0 {
		a.failf("%s is %d, must be 0", name, value)
	}
}

// size checks a struct_size against the size that this library knows.
func (a *arguments) size(name string, got C.uint32_t, want uintptr) {
	if uintptr(got) < want || got > maxStruct || got%8 != 0 {
		a.failf("struct_size of %s is %d, must be its sizeof (%d in ABI version %d)", name, got, want, C.NIXLPUSH_ABI_VERSION)
	}
}

// text copies a string; NULL is "".
func (a *arguments) text(name string, p *C.char) string {
	if p == nil || a.err != nil {
		return ""
	}
	for n := range maxText {
		if *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
			continue
		}
		bytes := unsafe.Slice((*byte)(unsafe.Pointer(p)), n)
		if !utf8.Valid(bytes) {
			a.failf("%s is not UTF-8", name)
			return ""
		}
		return string(bytes)
	}
	a.failf("%s has no NUL within %d bytes", name, maxText)
	return ""
}

// array is the caller's memory as a slice, good during the call only.
func array[T any](a *arguments, name string, p *T, count, limit uint64) []T {
	switch {
	case a.err != nil || count == 0:
	case count > limit:
		a.failf("%d %s, at most %d are possible", count, name, limit)
	case p == nil:
		a.failf("%s is NULL, but their number is %d", name, count)
	default:
		return unsafe.Slice(p, count)
	}
	return nil
}

// structs is array for structs that begin with struct_size: the caller's may be longer
// than ours, and the size in the first one is the distance between all. It calls f for
// each, and puts in front of its error which one it was.
func structs[T any](a *arguments, name string, p *T, count, limit uint64, f func(entry *T)) {
	if len(array(a, name+"s", p, count, limit)) == 0 {
		return
	}
	stride := *(*C.uint32_t)(unsafe.Pointer(p))
	for i := range int(count) {
		entry := (*T)(unsafe.Add(unsafe.Pointer(p), i*int(stride)))
		size := *(*C.uint32_t)(unsafe.Pointer(entry))
		if size != stride {
			a.failf("struct_size is %d, must be %d as in the first %s", size, stride, name)
		}
		a.size(name, size, unsafe.Sizeof(*entry))
		if a.err == nil {
			f(entry)
		}
		if a.err != nil {
			a.err = fmt.Errorf("%s %d: %w", name, i, a.err)
			return
		}
	}
}
