package connector

import (
	"errors"
	"fmt"
)

// What the methods of an Engine return wraps one of these.
var (
	// ErrInvalid: an argument is wrong; nothing was done.
	ErrInvalid = errors.New("invalid argument")
	// ErrState: not now, e.g. a step before the cache is registered or after Close.
	ErrState = errors.New("wrong state")
	// ErrInternal: a defect of nixlpush; the engine refuses work from now on.
	ErrInternal = errors.New("internal error")
)

// failure is an error with the reason that the embedder is told.
type failure struct {
	reason Reason
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failf(reason Reason, format string, args ...any) *failure {
	return &failure{reason, fmt.Errorf(format, args...)}
}
