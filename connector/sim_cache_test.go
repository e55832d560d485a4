package connector

import (
	"fmt"
	"unsafe"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/nixl"
)

// The model of the simulator: a block holds one token, that is one word for each layer and head.
const (
	simLayers = 2
	simHeads  = 2
	simBlocks = 14 // of an engine: few, so that a freed block is soon another request's
	simWord   = 8
)

// simCache is the KV cache of one rank.
type simCache struct {
	words []uint64
	heads blocks.Axis
}

func newSimCache(tp, tpSize int) *simCache {
	heads := blocks.Heads(tp, tpSize, simHeads)
	heads.Stride = simWord
	return &simCache{make([]uint64, simLayers*simBlocks*int(heads.N)), heads}
}

func (c *simCache) base() uint64 { return uint64(uintptr(unsafe.Pointer(&c.words[0]))) }

func (c *simCache) layout() Layout {
	size := simWord * uint64(c.heads.N)
	l := Layout{Name: "LBHNC", AttentionBackend: "SIM", BlockSize: 1, NumBlocks: simBlocks,
		Memory: []Memory{{Desc: nixl.Desc{Addr: c.base(), Len: simWord * uint64(len(c.words))}}}}
	for layer := range simLayers {
		l.Regions = append(l.Regions, Region{Name: fmt.Sprint("layers.", layer), Base: c.base() + uint64(layer)*simBlocks*size,
			BlockLen: size, Stride: size, NumBlocks: simBlocks,
			Parts: []Part{{Component: "kv", Size: simWord, Layers: blocks.One(uint32(layer)), Heads: c.heads, HeadsOf: simHeads, TokenStride: simWord}}})
	}
	return l
}

// place is which element of the model a word of a cache belongs to.
type place struct {
	layer, head int
	block       uint32
}

func (c *simCache) place(word int) place {
	n := int(c.heads.N)
	return place{word / (simBlocks * n), int(c.heads.First) + word%n, uint32(word / n % simBlocks)}
}

// at lists the words of a range of memory, which must lie in the cache.
func (c *simCache) at(d nixl.Desc) (first, n int, ok bool) {
	offset := d.Addr - c.base()
	ok = d.Addr >= c.base() && offset+d.Len <= simWord*uint64(len(c.words)) && offset%simWord == 0
	return int(offset / simWord), int(d.Len / simWord), ok
}

// each calls f with every word of a block.
func (c *simCache) each(block uint32, f func(place, *uint64)) {
	n := int(c.heads.N)
	for layer := range simLayers {
		for h := range n {
			word := (layer*simBlocks+int(block))*n + h
			f(c.place(word), &c.words[word])
		}
	}
}

// kv is what a prompt has at a position.
func kv(prompt, position int, at place) uint64 {
	return mix(uint64(prompt)<<32 | uint64(position)<<16 | uint64(at.layer)<<8 | uint64(at.head))
}

// mix spreads the bits of a number (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// simPool is the blocks of an engine and the legs that own them. The simulation's lock guards it.
type simPool struct {
	owner [simBlocks]*simLeg
	free  []uint32 // the last one freed is the first to be used again
}

func newSimPool() *simPool {
	p := &simPool{}
	for id := range uint32(simBlocks) {
		p.free = append(p.free, id)
	}
	return p
}

func (p *simPool) take(leg *simLeg, n int) []uint32 {
	ids := append([]uint32{}, p.free[len(p.free)-n:]...)
	p.free = p.free[:len(p.free)-n]
	for _, id := range ids {
		p.owner[id] = leg
	}
	return ids
}

func (p *simPool) put(ids []uint32) {
	for _, id := range ids {
		p.owner[id] = nil
	}
	p.free = append(p.free, ids...)
}
