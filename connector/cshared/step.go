package main

// #include "abi.h"
import "C"

import (
	"unsafe"

	"github.com/nixlpush/nixlpush/connector"
)

func stepIn(p *C.const_step) (connector.Step, error) {
	var a arguments
	a.require("step", unsafe.Pointer(p))
	if a.err != nil {
		return connector.Step{}, a.err
	}
	a.size("nixlpush_step", p.struct_size, unsafe.Sizeof(*p))
	if a.err != nil {
		return connector.Step{}, a.err
	}
	a.zero("reserved of the step", p.reserved)
	s := connector.Step{
		Expects:  expects(&a, p.expects, uint64(p.num_expects)),
		Offers:   offers(&a, p.offers, uint64(p.num_offers)),
		Declines: declines(&a, p.declines, uint64(p.num_declines)),
		Cancels:  cancels(&a, p.cancels, uint64(p.num_cancels)),
	}
	return s, a.err
}

func expects(a *arguments, p *C.nixlpush_expect, count uint64) (out []connector.Expect) {
	structs(a, "expect", p, count, maxStep, func(x *C.nixlpush_expect) {
		out = append(out, connector.Expect{
			Tag:             uint64(x.tag),
			RequestID:       a.text("request_id", x.request_id),
			TransferID:      a.text("transfer_id", x.transfer_id),
			RemoteRequestID: a.text("remote_request_id", x.remote_request_id),
			Producer: connector.Endpoint{
				EngineID: a.text("producer_engine_id", x.producer_engine_id),
				Host:     a.text("producer_host", x.producer_host),
				Port:     int(x.producer_port),
				TPSize:   int(max(x.producer_tp_size, 1)),
				PPSize:   int(max(x.producer_pp_size, 1)),
			},
			Blocks: blockIDs(a, &x.blocks),
		})
	})
	return out
}

func offers(a *arguments, p *C.nixlpush_offer, count uint64) (out []connector.Offer) {
	structs(a, "offer", p, count, maxStep, func(o *C.nixlpush_offer) {
		out = append(out, connector.Offer{
			Tag:        uint64(o.tag),
			RequestID:  a.text("request_id", o.request_id),
			TransferID: a.text("transfer_id", o.transfer_id),
			Blocks:     blockIDs(a, &o.blocks),
			Tokens:     uint64(o.tokens),
			Lease:      milliseconds(o.lease_ms),
		})
	})
	return out
}

func declines(a *arguments, p *C.nixlpush_decline, count uint64) (out []connector.Decline) {
	structs(a, "decline", p, count, maxStep, func(d *C.nixlpush_decline) {
		a.zero("reserved", d.reserved)
		out = append(out, connector.Decline{
			RequestID:  a.text("request_id", d.request_id),
			TransferID: a.text("transfer_id", d.transfer_id),
			Why:        a.text("why", d.why),
		})
	})
	return out
}

func cancels(a *arguments, p *C.uint64_t, count uint64) []uint64 {
	list := array(a, "cancels", p, count, maxStep)
	return append([]uint64(nil), unsafe.Slice((*uint64)(unsafe.SliceData(list)), len(list))...)
}

// blockIDs copies the ids of all groups in one go and cuts the copy into lists.
func blockIDs(a *arguments, b *C.nixlpush_blocks) connector.BlockIDs {
	a.zero("reserved of the blocks", b.reserved)
	counts := array(a, "groups", b.counts, uint64(b.num_groups), maxGroups)
	if len(counts) == 0 {
		return nil
	}
	var total uint64
	for _, n := range counts {
		total += uint64(n)
	}
	ids := array(a, "block ids", b.ids, total, maxIDs)
	if a.err != nil {
		return nil
	}
	flat := append([]uint32(nil), unsafe.Slice((*uint32)(unsafe.SliceData(ids)), len(ids))...)
	lists := make(connector.BlockIDs, len(counts))
	for i := range counts {
		n := min(int(counts[i]), len(flat)) // never cuts: total is the sum of the counts
		lists[i], flat = flat[:n:n], flat[n:]
	}
	return lists
}
