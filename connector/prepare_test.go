package connector

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/nixl"
)

var casesFile = flag.String("cases", "", "what BenchmarkPrepare plans, as bench/plan.py writes it")

// prepareCases is the file of -cases.
type prepareCases struct {
	Layers, Heads, Element uint64
	Cases                  []prepareCase
}

type prepareCase struct {
	Name           string
	Source, Target prepareSide
	SourceIDs      []uint32 `json:"source_ids"`
	TargetIDs      []uint32 `json:"target_ids"`
	Tokens         uint64
}

type prepareSide struct{ Tokens, Blocks, First, Heads uint64 }

// cache is vLLM's usual layout: a region per layer, in each block head after head.
func (f *prepareCases) cache(s prepareSide, base uint64) (c blocks.Cache) {
	head := s.Tokens * f.Element
	block := s.Heads * head
	for l := range f.Layers {
		c = append(c, blocks.Region{Base: base + l*s.Blocks*block, Stride: block, NumBlocks: uint32(s.Blocks), PerID: 1, Tokens: uint32(s.Tokens),
			Parts: []blocks.Part{{Component: "kv", Size: f.Element, Layers: blocks.One(uint32(l)),
				Heads: blocks.Axis{First: uint32(s.First), N: uint32(s.Heads), Stride: head}, HeadsOf: uint32(f.Heads), TokenStride: f.Element}}})
	}
	return c
}

// size is that of the largest cache.
func (f *prepareCases) size() (size uint64) {
	for _, c := range f.Cases {
		for _, s := range []prepareSide{c.Source, c.Target} {
			size = max(size, f.Layers*s.Blocks*s.Heads*s.Tokens*f.Element)
		}
	}
	return size
}

// reserve is memory of which only the addresses count.
func reserve(b *testing.B, size uint64) nixl.Desc {
	memory, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS|syscall.MAP_NORESERVE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { syscall.Munmap(memory) })
	return nixl.Desc{Addr: uint64(uintptr(unsafe.Pointer(&memory[0]))), Len: size}
}

// BenchmarkPrepare is what a writer does before it posts, as far as the plan, its descriptors
// and NIXL's request. Run it with bench/plan.py, which has stock's way beside it.
func BenchmarkPrepare(b *testing.B) {
	if *casesFile == "" {
		b.Skip("run bench/plan.py")
	}
	var file prepareCases
	text, err := os.ReadFile(*casesFile)
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		b.Fatal(err)
	}
	source, target := realTransport(b), realTransport(b)
	from, to := reserve(b, file.size()), reserve(b, file.size())
	agent, err := meet(source, from, target, to)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range file.Cases {
		m, err := blocks.NewMapping(file.cache(c.Source, from.Addr), file.cache(c.Target, to.Addr))
		if err != nil {
			b.Fatal(err)
		}
		var wr writer
		have, want := [][]uint32{c.SourceIDs}, [][]uint32{c.TargetIDs}
		measure := func(step string, run func() (copies int, err error)) {
			b.Run(c.Name+"/"+step, func(b *testing.B) {
				copies, err := run() // grows the buffers
				for b.Loop() && err == nil {
					_, err = run()
				}
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(copies), "copies")
			})
		}
		measure("plan", func() (int, error) {
			plan, err := wr.planner.Plan(m, have, want, c.Tokens)
			return plan.Copies, err
		})
		measure("expanded", func() (int, error) {
			plan, err := wr.planner.Plan(m, have, want, c.Tokens)
			wr.expand(&plan, 0, 0)
			return len(wr.local), err
		})
		measure("request", func() (int, error) {
			w := &write{transport: source, have: have, want: want, tokens: c.Tokens, target: &remoteRank{agent: agent, mapping: m}, notif: []byte("done")}
			if failed := wr.prepare(w); failed != nil {
				return 0, failed
			}
			return int(w.descriptors), w.release()
		})
	}
}

// meet registers memory on both sides and makes the target known to the source.
func meet(source nixl.Transport, from nixl.Desc, target nixl.Transport, to nixl.Desc) (string, error) {
	if _, err := source.Register(nixl.DRAM, []nixl.Desc{from}); err != nil {
		return "", err
	}
	if _, err := target.Register(nixl.DRAM, []nixl.Desc{to}); err != nil {
		return "", err
	}
	metadata, err := target.Metadata()
	if err != nil {
		return "", fmt.Errorf("metadata: %w", err)
	}
	return source.Load(metadata)
}
