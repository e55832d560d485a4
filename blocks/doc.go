// Package blocks is the arithmetic of KV blocks: which bytes of the producer's cache
// belong where in the consumer's, in as few copies as the block lists allow.
// docs/geometry.md has the picture.
//
// A Cache describes what the bytes of one worker mean. A Mapping, made once per pair of
// workers, is what two descriptions have in common. A Planner turns it and the block ids
// of a request into copies. Ranks says which pairs of workers there are.
//
// The package does no I/O, knows no transport and keeps no state but buffers.
package blocks
