package main

// #include "abi.h"
import "C"

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"

	"github.com/nixlpush/nixlpush/connector"
)

// maxStacks bounds the bytes of the stacks of all goroutines that are logged.
const maxStacks = 128 << 10

// poisoned is set by the first panic of an export. What the library believes is not to
// be trusted then: it takes no more work, but what it holds can be ended.
var poisoned atomic.Bool

// call runs the body of an export that makes or changes something. It returns what the
// export returns: the body's number, or the code of its error, with the text in err.
func call(err *C.nixlpush_error, body func() (int, error)) C.int32_t {
	if poisoned.Load() {
		return failed(err, fmt.Errorf("%w: nixlpush panicked and refuses work, restart this process; its log has the stacks", connector.ErrInternal))
	}
	return observe(err, body)
}

// observe is call for the exports that fetch or end something: they still serve what is
// held after a panic.
func observe(err *C.nixlpush_error, body func() (int, error)) (code C.int32_t) {
	defer func() {
		if value := recover(); value != nil {
			code = failed(err, panicked(value))
		}
	}()
	n, failure := body()
	if failure != nil {
		return failed(err, failure)
	}
	setError(err, C.NIXLPUSH_OK, "")
	return C.int32_t(n)
}

// panicked poisons the library. The first panic is logged with all stacks.
func panicked(value any) error {
	if !poisoned.Swap(true) {
		stacks := make([]byte, maxStacks)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if ring, err := logs(); err == nil {
			ring.Add(slog.LevelError, fmt.Sprintf("panic in nixlpush: %v\n%s", value, stacks))
		}
	}
	return fmt.Errorf("%w: panic: %v", connector.ErrInternal, value)
}

// failed converts an error.
func failed(err *C.nixlpush_error, failure error) C.int32_t {
	code := codeOf(failure)
	setError(err, code, failure.Error())
	return code
}

// coded is an error whose code is known where it arises.
type coded struct {
	code C.int32_t
	error
}

func (c coded) Unwrap() error { return c.error }

// withCode gives an error a code, unless the error says better.
func withCode(code C.int32_t, err error) error {
	if err == nil {
		return nil
	}
	return coded{code, err}
}

func codeOf(err error) C.int32_t {
	for _, known := range []struct {
		err  error
		code C.int32_t
	}{
		{errHandle, C.NIXLPUSH_EHANDLE},
		{errShort, C.NIXLPUSH_ESHORT},
		{errArgument, C.NIXLPUSH_EINVAL},
		{connector.ErrInvalid, C.NIXLPUSH_EINVAL},
		{connector.ErrState, C.NIXLPUSH_ESTATE},
		{connector.ErrInternal, C.NIXLPUSH_EINTERNAL},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	var c coded
	if errors.As(err, &c) {
		return c.code
	}
	return C.NIXLPUSH_EINTERNAL
}
