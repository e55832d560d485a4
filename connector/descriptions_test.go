package connector

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
	"github.com/nixlpush/nixlpush/notify"
)

// TestStockPeers derives a peer's description, on P, on D and on both.
func TestStockPeers(t *testing.T) {
	for _, c := range []struct {
		m        testModel
		from, to side
	}{
		{testModel{layers: 2, heads: 8}, side{}, side{}},
		{testModel{layers: 2, heads: 8}, side{tp: 2}, side{tp: 4}},
		{testModel{layers: 2, heads: 8}, side{tp: 4}, side{}},
		{testModel{layers: 2, heads: 2}, side{tp: 4}, side{tp: 2}},
		{testModel{layers: 2, heads: 4}, side{tp: 4, layout: "LBNHC"}, side{tp: 2, layout: "LBNHC"}},
		{testModel{layers: 2, latent: true}, side{tp: 2}, side{}},
		{testModel{layers: 2, latent: true}, side{}, side{tp: 2}},
		{testModel{layers: 5, heads: 4}, side{stages: []int{2, 3}, tp: 2}, side{}},
		{testModel{layers: 4, heads: 4, groups: 2, window: 24}, side{tp: 2}, side{}},
		{testModel{layers: 2, heads: 4}, side{tp: 2}, side{tokens: 32}},
	} {
		for _, stock := range []string{"P", "D", "both"} {
			t.Run(fmt.Sprintf("%+v %s", c, stock), func(t *testing.T) {
				from, to := c.from, c.to
				if stock != "D" {
					from.port = stockPorts + 1
				}
				if stock != "P" {
					to.port = stockPorts + 2
				}
				inFleet(t, c.m, from, to, nixltest.Faults{}, func(f *fleet) {
					r := f.request(40)
					f.expectAll(r)
					f.offerAll(r)
					f.arrives(r)
					f.empty()
				})
			})
		}
	}
}

// parts changes every part of a layout.
func parts(change func(p *blocks.Part)) func(l *Layout) {
	return func(l *Layout) {
		for i := range l.Regions {
			for k := range l.Regions[i].Parts {
				change(&l.Regions[i].Parts[k])
			}
		}
	}
}

// TestHandshakeRefuses has geometries that cannot be mapped. Both sides find out by themselves.
func TestHandshakeRefuses(t *testing.T) {
	stockP, stockD := side{port: stockPorts + 1}, side{port: stockPorts + 2}
	for _, c := range []struct {
		name     string
		from, to side
		change   func(l *Layout) // of D
		text     []string
		onlyD    bool
	}{
		{"sizes", side{tp: 4}, side{tp: 3}, nil, []string{"4", "3", "must divide"}, false},
		{"element", side{}, side{}, parts(func(p *blocks.Part) { p.Size = 4 }), []string{"bytes of an element", "8", "4", "heads 0-11 of 12"}, false},
		{"component", side{}, side{tp: 2}, parts(func(p *blocks.Part) { p.Component += "x" }), []string{"has no writer", "kx at +0: 8 bytes", "v at +8: 8 bytes"}, false},
		{"group", side{}, side{}, func(l *Layout) { l.Regions[1].Group = 1 }, []string{"groups"}, false},
		{"window", side{tp: 2}, side{}, func(l *Layout) { l.Regions[0].Window, l.Regions[1].Window = 64, 64 }, []string{"windows of", "64"}, false},
		{"state", side{}, side{}, func(l *Layout) {
			parts(func(p *blocks.Part) { p.TokenStride = 0 })(l)
			l.Regions[0].Tokens, l.Regions[1].Tokens = OneState, OneState
		}, []string{"blocks of", "a state", "tokens"}, false},
		{"stock, layout", stockP, stockD, func(l *Layout) { l.Name = "LBNHC" }, []string{"cache layout", "LBHNC", "LBNHC"}, false},
		{"stock, length", stockP, stockD, func(l *Layout) {
			r := &l.Regions[1]
			r.BlockLen, r.Stride, r.NumBlocks = r.BlockLen+64, r.Stride+64, r.NumBlocks-4
		}, []string{"layers.1", "3072", "3136", "heads 0-11 of 12"}, false},
		{"stock, names", stockP, stockD, func(l *Layout) { l.Regions[1].Name = "drafter" }, []string{"layers.1", "is not"}, false},
		{"no parts, sizes", side{}, side{tp: 2}, func(l *Layout) { l.Regions[0].Parts = nil }, []string{"it must be described"}, true},
		{"backend", side{}, side{}, func(l *Layout) { l.AttentionBackend = "OTHER" }, []string{"attention backend", "TEST", "OTHER"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.to.change = c.change
			inFleet(t, testModel{layers: 2, heads: 12}, c.from, c.to, nixltest.Faults{}, func(f *fleet) {
				messages := map[string]string{"D": f.refusedByD()}
				if !c.onlyD {
					messages["P"] = f.refusedByP()
				}
				for who, message := range messages {
					for _, text := range c.text {
						if !strings.Contains(message, text) {
							t.Errorf("%s says %q, which lacks %q", who, message, text)
						}
					}
				}
				if bytes.Count(f.d[0].mem, []byte{0xEE}) != len(f.d[0].mem) {
					t.Error("something was written")
				}
				f.empty()
			})
		})
	}
}

// refusedByD is what D says of a request.
func (f *fleet) refusedByD() string {
	r := f.request(20)
	for range len(f.d[0].limits) - 1 {
		r.want = append(r.want, []uint32{})
	}
	f.expect(f.d[0], r)
	return f.wants(f.d[0].testEngine, time.Second, r.tag, ReceiveFailed, ReasonIncompatible).Message
}

// refusedByP is what P says when D registers although it should have refused.
func (f *fleet) refusedByP() string {
	f.Helper()
	d, r := f.d[0], f.request(20)
	metadata, err := f.p[0].nixl.Metadata()
	if err == nil {
		_, err = d.nixl.Load(metadata)
	}
	if err == nil {
		err = d.nixl.Notify(f.p[0].name, (&notify.Registration{RequestID: "cmpl-" + r.id + "-0-0123abcd", DecodeEngineID: d.cfg.EngineID,
			DecodeHost: d.cfg.Host, DecodePort: d.cfg.Port, DecodeTPSize: f.to.tp, Blocks: r.want}).Encode())
	}
	if err != nil {
		f.Fatal(err)
	}
	f.offer(f.p[0], r)
	message := f.wants(f.p[0].testEngine, time.Second, r.tag, SendFailed, ReasonIncompatible).Message
	time.Sleep(4 * time.Second) // P forgets that other ranks did not register
	return message
}

// TestTokensAreNeeded has lists that do not say where they end.
func TestTokensAreNeeded(t *testing.T) {
	inFleet(t, twoHeads, side{tokens: 64}, side{}, nixltest.Faults{}, func(f *fleet) {
		r := f.request(70)
		f.expectAll(r)
		r.tokens = 0
		f.offerAll(r)
		ev := f.wants(f.p[0].testEngine, time.Second, r.tag, SendFailed, ReasonIncompatible)
		if !strings.Contains(ev.Message, "number of tokens") {
			t.Errorf("message %q", ev.Message)
		}
	})
}

// TestStagesDoNotConsume: pipeline parallelism is for producers.
func TestStagesDoNotConsume(t *testing.T) {
	inFleet(t, twoHeads, side{stages: []int{1, 1}}, side{}, nixltest.Faults{}, func(f *fleet) {
		r := f.request(20)
		err := f.p[0].Submit(Step{Expects: []Expect{{Tag: 9, RequestID: r.id, Producer: f.endpoint(), Blocks: r.want}}})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "pipeline") {
			t.Errorf("%v", err)
		}
	})
}

// TestRanksOfOneAgent has a side channel that answers for every rank alike.
func TestRanksOfOneAgent(t *testing.T) {
	inFleet(t, testModel{layers: 2, latent: true}, side{tp: 2}, side{}, nixltest.Faults{}, func(f *fleet) {
		f.site[seat{pPort, 0, 1}] = f.p[0].Engine
		if message := f.refusedByD(); !strings.Contains(message, "same NIXL agent") {
			t.Errorf("message %q", message)
		}
		time.Sleep(time.Second)
		if err := f.d[0].nixl.Notify(f.p[0].name, []byte("x")); !errors.Is(err, nixl.ErrNotFound) {
			t.Errorf("the agent of a failed handshake is still loaded: %v", err)
		}
		f.site[seat{pPort, 0, 1}] = f.p[1].Engine
		r := f.request(20)
		f.expectAll(r)
		f.offerAll(r)
		f.arrives(r)
		f.empty()
	})
}

// TestRanksAreNotMixedUp has a side channel that answers for one rank with the other.
func TestRanksAreNotMixedUp(t *testing.T) {
	inFleet(t, twoHeads, side{tp: 2}, side{}, nixltest.Faults{}, func(f *fleet) {
		f.site[seat{pPort, 0, 0}], f.site[seat{pPort, 0, 1}] = f.p[1].Engine, f.p[0].Engine
		if message := f.refusedByD(); !strings.Contains(message, "heads 1-1 of 2, rank 0 of 2 has 0-0") {
			t.Errorf("message %q", message)
		}
	})
}
