// Package blocks is the arithmetic of KV blocks: which bytes of the producer's cache
// belong where in the consumer's, in as few descriptors as the block lists allow.
// It does no I/O, knows no transport and keeps no state but buffers.
package blocks
