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
	}
	return l, a.err
}

func regions(a *arguments, p *C.const_layout) []connector.Region {
	list := array(a, "regions", p.regions, uint64(p.num_regions), maxRegions)
	out := make([]connector.Region, len(list))
	for i := range list {
		r := &list[i]
		a.zero("reserved of a region", r.reserved)
		out[i] = connector.Region{
			Name:      a.text("name of a region", r.name),
			Base:      uint64(r.base),
			BlockLen:  uint64(r.block_len),
			Stride:    uint64(r.stride),
			NumBlocks: int(r.num_blocks),
			Group:     int(r.group),
			Mem:       mem(a, "region", i, r.mem),
		}
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
			Mem:  mem(a, "memory range", i, m.mem),
		}
	}
	return out
}

func mem(a *arguments, of string, i int, value C.uint32_t) nixl.Mem {
	switch value {
	case C.NIXLPUSH_DRAM:
		return nixl.DRAM
	case C.NIXLPUSH_VRAM:
		return nixl.VRAM
	}
	a.failf("mem of %s %d is %d, must be NIXLPUSH_DRAM or NIXLPUSH_VRAM", of, i, value)
	return 0
}
