package connector

import (
	"fmt"
	"hash/fnv"
	"unsafe"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/nixl"
)

// testModel is what both engines of a test run.
type testModel struct {
	layers int
	heads  int  // of K and V
	latent bool // MLA instead: one latent that every rank holds
	groups int  // layer l is of group l % groups; 0: one group
	window int  // of the last group, in tokens
	draft  bool // a drafter's layer is numbered behind the others
}

// side is how one engine lays the model out.
type side struct {
	tp     int
	stages []int // layers of each pipeline stage; nil: one has all
	tokens int   // of a block; 0: 16
	layout string
	port   int
	change func(*Layout)
	drafts bool // all stages hold the drafter, not only the last one
}

const shardBlocks = 40

// shard is the KV cache of one rank.
type shard struct {
	mem     []byte
	layout  Layout
	regions blocks.Cache
}

type component struct {
	name  string
	size  uint64
	heads int
}

func (m testModel) components() []component {
	if m.latent {
		return []component{{"latent", 24, 1}}
	}
	return []component{{"k", 8, m.heads}, {"v", 8, m.heads}}
}

func (m testModel) groupOf(layer int) int { return layer % max(m.groups, 1) }

// shard lays out the layers of a stage for a rank: LBHNC (tokens within heads) or LBNHC.
func (m testModel) shard(s side, pp, tp int) *shard {
	tokens := s.blockTokens()
	held := blocks.Heads(tp, s.tp, m.components()[0].heads)
	element := uint64(0)
	for _, c := range m.components() {
		element += c.size
	}
	size := element * uint64(held.N) * uint64(tokens)
	layers := s.layers(m, pp)
	c := &shard{mem: make([]byte, uint64(len(layers))*shardBlocks*size)}
	for i := range c.mem {
		c.mem[i] = 0xEE
	}
	base := uint64(uintptr(unsafe.Pointer(&c.mem[0])))
	held.Stride = element * uint64(tokens)
	tokenStride := element
	if s.layout == "LBNHC" {
		held.Stride, tokenStride = element, element*uint64(held.N)
	}
	c.layout = Layout{Name: s.layout, AttentionBackend: "TEST", BlockSize: tokens, NumBlocks: shardBlocks,
		Memory: []Memory{{Desc: nixl.Desc{Addr: base, Len: uint64(len(c.mem))}}}}
	for i, l := range layers {
		r := Region{Name: fmt.Sprintf("layers.%d", l), Base: base + uint64(i)*shardBlocks*size, BlockLen: size, Stride: size,
			NumBlocks: shardBlocks, Group: m.groupOf(l)}
		if m.window > 0 && r.Group == m.groups-1 {
			r.Window = m.window
		}
		at := uint64(0)
		for _, x := range m.components() {
			r.Parts = append(r.Parts, blocks.Part{Component: x.name, Offset: at, Size: x.size, Layers: blocks.One(uint32(l)),
				Heads: held, HeadsOf: uint32(x.heads), TokenStride: tokenStride})
			at += x.size
		}
		c.layout.Regions = append(c.layout.Regions, r)
	}
	if s.change != nil {
		s.change(&c.layout)
	}
	return c
}

func (s side) blockTokens() int {
	if s.tokens == 0 {
		return 16
	}
	return s.tokens
}

func (s side) pp() int { return max(1, len(s.stages)) }

// layers is what a stage holds.
func (s side) layers(m testModel, pp int) (list []int) {
	first, n := 0, m.layers
	if s.stages != nil {
		for _, before := range s.stages[:pp] {
			first += before
		}
		n = s.stages[pp]
	}
	for l := range n {
		list = append(list, first+l)
	}
	if m.draft && (s.drafts || pp == s.pp()-1) {
		list = append(list, m.layers)
	}
	return list
}

// each calls f for every element of the request's tokens before end in the blocks of a group,
// which begin with token first. It finds them on its own: not as package blocks does.
func (c *shard) each(group int, ids []uint32, first, end int, f func(what string, token int, element []byte)) {
	for _, r := range c.layout.Regions {
		if r.Group != group {
			continue
		}
		for token := first; token < end; token++ {
			id := ids[(token-first)/c.layout.BlockSize]
			block := r.Base - c.layout.Regions[0].Base + uint64(id)*r.Stride
			for _, p := range r.Parts {
				for h := range uint64(p.Heads.N) {
					at := block + p.Offset + h*p.Heads.Stride + uint64(token%c.layout.BlockSize)*p.TokenStride
					f(fmt.Sprint(p.Component, p.Layers.First, " head ", uint64(p.Heads.First)+h, " token ", token), token, c.mem[at:at+p.Size])
				}
			}
		}
	}
}

// content is what an element of a request holds.
func content(what string, seed byte, k int) byte {
	h := fnv.New32a()
	h.Write([]byte(what))
	return byte(h.Sum32()>>(k%4*8)) ^ seed ^ byte(k)
}

func (c *shard) paint(group int, ids []uint32, first, end int, seed byte) {
	c.each(group, ids, first, end, func(what string, _ int, element []byte) {
		for k := range element {
			element[k] = content(what, seed, k)
		}
	})
}

// wrong names the first element, from token needed on, that is not what it should be.
func (c *shard) wrong(group int, ids []uint32, first, needed, end int, seed byte) (found string) {
	c.each(group, ids, first, end, func(what string, token int, element []byte) {
		for k, v := range element {
			if v != content(what, seed, k) && found == "" && token >= needed {
				found = what
			}
		}
	})
	return found
}

// touched counts the blocks that have changed, other than the given ones.
func (c *shard) touched(group int, ids []uint32) (n int) {
	known := map[uint32]bool{}
	for _, id := range ids {
		known[id] = true
	}
	for _, r := range c.layout.Regions {
		if r.Group != group {
			continue
		}
		for id := range uint32(shardBlocks) {
			at := r.Base - c.layout.Regions[0].Base + uint64(id)*r.Stride
			for _, v := range c.mem[at : at+r.BlockLen] {
				if v != 0xEE && !known[id] {
					n++
					break
				}
			}
		}
	}
	return n
}
