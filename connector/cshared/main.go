// Command cshared is the C face of nixlpush: built with -buildmode=c-shared it is
// libnixlpush.so.1, whose functions include/nixlpush.h describes.
//
// Each export has the same five steps: guard against panics and refuse work after one
// (call, observe), look up the handle, convert the arguments to Go, call, convert the
// outcome to C. All logic is elsewhere.
//
// Pointers of the caller are read and written during the call only, through
// unsafe.Slice over its memory, after their NULLs, sizes and counts have been checked.
package main

// #include "abi.h"
import "C"

import (
	"sync"
)

// version is that of the library; the Makefile sets it from the file VERSION.
var version = "devel"

func main() {}

//export nixlpush_abi_version
func nixlpush_abi_version() C.uint32_t { return C.NIXLPUSH_ABI_VERSION }

// cVersion is never freed: the header says so.
var cVersion = sync.OnceValue(func() *C.char { return C.CString(version) })

//export nixlpush_version
func nixlpush_version() *C.const_char { return (*C.const_char)(cVersion()) }
