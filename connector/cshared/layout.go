package main

// #include "abi.h"
import "C"

import (
	"unsafe"

	"github.com/nixlpush/nixlpush/connector"
	"github.com/nixlpush/nixlpush/nixl"
)

func layoutIn(p *C.const_layout) (connector.Layout, error) {
	var a arguments
	a.require("layout", unsafe.Pointer(p))
	if a.err != nil {
		return connector.Layout{}, a.err
	}
	a.size("nixlpush_layout", p.struct_size, unsafe.Sizeof(*p))
	if a.err != nil {
		return connector.Layout{}, a.err
	}
	a.zero("reserved of the layout", p.reserved)
	l := connector.Layout{
		Name:               a.text("name", p.name),
		AttentionBackend:   a.text("attention_backend", p.attention_backend),
		BlockSize:          int(p.block_size),
		NumBlocks:          int(p.num_blocks),
		PhysicalPerLogical: int(max(p.physical_per_logical, 1)),
		DeviceID:           int(p.device_id),
		SSMSizes:           [2]int{int(p.ssm_sizes[0]), int(p.ssm_sizes[1])},
		Regions:            regions(&a, p),
		Memory:             memory(&a, p),
		Stock:              stockRegions(&a, p),
	}
	return l, a.err
}

func regions(a *arguments, p *C.const_layout) (out []connector.Region) {
	structs(a, "region", p.regions, uint64(p.num_regions), maxRegions, func(r *C.nixlpush_region) {
		a.zero("reserved", r.reserved)
		out = append(out, connector.Region{
			Name:      a.text("name", r.name),
			Base:      uint64(r.base),
			BlockLen:  uint64(r.block_len),
			Stride:    uint64(r.stride),
			NumBlocks: int(r.num_blocks),
			Group:     int(r.group),
			Mem:       mem(a, "mem", r.mem),
			PerID:     int(r.per_id),
			Tokens:    tokens(r.tokens),
			Window:    int(r.window),
			Parts:     parts(a, r),
		})
	})
	return out
}

func tokens(value C.uint32_t) int {
	if value == C.NIXLPUSH_ONE_STATE {
		return connector.OneState
	}
	return int(value)
}

// parts copies what is in a block. Whether it fits is for the engine to say.
func parts(a *arguments, r *C.nixlpush_region) []connector.Part {
	list := array(a, "parts", r.parts, uint64(r.num_parts), maxParts)
	out := make([]connector.Part, len(list))
	for i := range list {
		p := &list[i]
		a.require("component of a part", unsafe.Pointer(p.component))
		out[i] = connector.Part{
			Component:   a.text("component of a part", p.component),
			Offset:      uint64(p.offset),
			Size:        uint64(p.size),
			Rows:        uint32(p.num_rows),
			RowStride:   uint64(p.row_stride),
			Layers:      axis(p.first_layer, p.num_layers, p.layer_stride),
			Heads:       axis(p.first_head, p.num_heads, p.head_stride),
			HeadsOf:     uint32(max(p.heads_of, 1)),
			TokenStride: uint64(p.token_stride),
		}
	}
	return out
}

func axis(first, n C.uint32_t, stride C.uint64_t) connector.Axis {
	return connector.Axis{First: uint32(first), N: uint32(max(n, 1)), Stride: uint64(stride)}
}

func stockRegions(a *arguments, p *C.const_layout) (out []connector.StockRegion) {
	structs(a, "stock region", p.stock_regions, uint64(p.num_stock_regions), maxRegions, func(r *C.nixlpush_stock_region) {
		out = append(out, connector.StockRegion{
			Name:      a.text("name", r.name),
			Base:      uint64(r.base),
			BlockLen:  uint64(r.block_len),
			Stride:    uint64(r.stride),
			NumBlocks: int(r.num_blocks),
			Group:     int(r.group),
			Mem:       mem(a, "mem", r.mem),
			Members:   members(a, r),
		})
	})
	return out
}

func members(a *arguments, r *C.nixlpush_stock_region) []connector.Member {
	list := array(a, "members", r.members, uint64(r.num_members), maxRegions)
	out := make([]connector.Member, len(list))
	for i := range list {
		m := &list[i]
		a.require("name of a member", unsafe.Pointer(m.name))
		out[i] = connector.Member{Name: a.text("name of a member", m.name), Offset: uint64(m.offset), Len: uint64(m.len)}
	}
	return out
}

func memory(a *arguments, p *C.const_layout) []connector.Memory {
	list := array(a, "memory ranges", p.memory, uint64(p.num_memory), maxRegions)
	out := make([]connector.Memory, len(list))
	for i := range list {
		m := &list[i]
		a.zero("reserved of a memory range", m.reserved)
		out[i] = connector.Memory{
			Desc: nixl.Desc{Addr: uint64(m.addr), Len: uint64(m.len), Dev: uint64(m.device)},
			Mem:  mem(a, "mem of a memory range", m.mem),
		}
	}
	return out
}

func mem(a *arguments, name string, value C.uint32_t) nixl.Mem {
	switch value {
	case C.NIXLPUSH_DRAM:
		return nixl.DRAM
	case C.NIXLPUSH_VRAM:
		return nixl.VRAM
	}
	a.failf("%s is %d, must be NIXLPUSH_DRAM or NIXLPUSH_VRAM", name, value)
	return 0
}
