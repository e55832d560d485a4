// Package sidechannel is the handshake between engines: a small ZeroMQ service that
// hands out the payload of each rank of an engine ([Server]), and the client that asks
// for it ([Client], [Fetch]). Both sides talk to stock vLLM 0.32, whose listener is a
// ROUTER and whose client is a REQ socket of libzmq. The bytes inside the frames are
// package notify's business.
//
// The package speaks the part of ZMTP 3.0 that this takes by itself. The pure Go
// library, go-zeromq/zmq4 v0.17.0, cannot stand on an open port: a frame header that
// claims 2^62 bytes makes it panic in a goroutine of its own, which ends the host
// process; it allocates whatever length a header claims; and it greets one connection
// after the other without a deadline, so that one silent connection shuts out all
// others. libzmq itself would have to be shipped along, through cgo.
//
// Everything here is bounded: sizes of frames, numbers of frames and connections, and
// the time a connection may take. No peer can end the listener or this process.
package sidechannel
