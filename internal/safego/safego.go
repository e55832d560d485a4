// Package safego starts goroutines that cannot end the process. The library lives in
// someone else's process: a panic nobody recovers would take that down, so every
// goroutine of ours starts here.
package safego

import (
	"fmt"
	"runtime/debug"
)

// Go runs f in a new goroutine. If f panics, the goroutine ends and onPanic is called
// in it with the panic's value and with the stack, headed by the goroutine's name.
// onPanic must not panic.
func Go(name string, onPanic func(value any, stack []byte), f func()) {
	go func() {
		defer func() {
			if value := recover(); value != nil {
				onPanic(value, fmt.Appendf(nil, "goroutine %q:\n%s", name, debug.Stack()))
			}
		}()
		f()
	}()
}
