// Package connector is the engine: it pairs what a prefill engine has computed with what
// a decode engine waits for, writes the KV across with a [nixl.Transport], and reports
// each request's end once.
//
// One goroutine, the loop, owns every table. Everything else talks to it: Submit and the
// handshake and writer goroutines put functions into its inbox, NIXL notifications and
// the states of posted WRITEs are what it polls for in between. So there is no lock on
// the path of a request and no order of locks to get wrong; the two mutexes (inbox,
// ledger) are never held across a call.
package connector
