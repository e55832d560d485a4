// Package notify is what two engines say to each other, as bytes: the notifications
// that travel over NIXL (registration, completion, heartbeat) and the handshake that
// travels over the side channel (request, payload, agent metadata). The bytes are those
// of vLLM 0.32's push connector, so either side may be a stock vLLM engine. What
// nixlpush adds sits under a msgpack key of its own, which stock engines ignore.
//
// The package also counts arrivals ([Arrivals]) and knows how vLLM builds request ids
// ([BaseID], [LeaseNames]). It is pure: no I/O, no goroutines, no clock.
//
// Everything decoded here may come from a hostile peer. Sizes, counts and nesting are
// bounded, nothing is allocated because a header says so before the bytes behind it
// are seen to be there, and a decoder returns an error and never panics.
package notify
