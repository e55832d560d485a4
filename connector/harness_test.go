package connector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/notify"
)

const (
	testBlock  = 256 // bytes of a block
	testBlocks = 64
	testLayers = 3
)

// testCache is the KV cache of one engine under test.
type testCache struct {
	mem []byte
	gap int // bytes between layers, so that the two sides differ
}

func newTestCache(fill byte, gap int) *testCache {
	c := &testCache{mem: make([]byte, testLayers*(testBlocks*testBlock+gap)), gap: gap}
	for i := range c.mem {
		c.mem[i] = fill
	}
	return c
}

func (c *testCache) base() uint64 { return uint64(uintptr(unsafe.Pointer(&c.mem[0]))) }

func (c *testCache) offset(layer int) int { return layer * (testBlocks*testBlock + c.gap) }

func (c *testCache) block(layer, id int) []byte {
	at := c.offset(layer) + id*testBlock
	return c.mem[at : at+testBlock]
}

func (c *testCache) layout() Layout {
	l := Layout{Name: "LBHNC", AttentionBackend: "TEST", BlockSize: 16, NumBlocks: testBlocks,
		Memory: []Memory{{Desc: nixl.Desc{Addr: c.base(), Len: uint64(len(c.mem))}}}}
	for i := range testLayers {
		l.Regions = append(l.Regions, Region{Name: fmt.Sprintf("layers.%d", i), Base: c.base() + uint64(c.offset(i)),
			BlockLen: testBlock, Stride: testBlock, NumBlocks: testBlocks})
	}
	return l
}

// paint gives every block of a request bytes of its own.
func (c *testCache) paint(ids []uint32, seed byte) {
	for layer := range testLayers {
		for i, id := range ids {
			b := c.block(layer, int(id))
			for k := range b {
				b[k] = seed ^ byte(layer*31+i*7+k)
			}
		}
	}
}

func (c *testCache) painted(ids []uint32, seed byte) bool {
	for layer := range testLayers {
		for i, id := range ids {
			for k, v := range c.block(layer, int(id)) {
				if v != seed^byte(layer*31+i*7+k) {
					return false
				}
			}
		}
	}
	return true
}

// stockPorts and those above are of peers that say no more than stock engines do.
const stockPorts = 7900

// slowPort is a peer's that accepts and never answers.
const slowPort = 7777

// site is the side channels of one test: who answers under which port for which rank.
type site map[seat]*Engine

type seat struct{ port, pp, tp int }

func (s site) fetch(ctx context.Context, host string, port, pp, tp int) ([]byte, error) {
	if port == slowPort {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	e := s[seat{port, pp, tp}]
	if e == nil {
		return nil, errors.New("connection refused")
	}
	frame, err := e.Metadata()
	if err != nil || port < stockPorts {
		return frame, err
	}
	return asStock(frame)
}

// asStock leaves out what a stock engine does not tell.
func asStock(frame []byte) ([]byte, error) {
	payload, err := notify.DecodePayload(frame)
	if err != nil {
		return nil, err
	}
	m, err := notify.DecodeAgentMetadata(payload.AgentMetadata)
	if err != nil {
		return nil, err
	}
	m.Extension = nil
	payload.AgentMetadata = m.Encode()
	return payload.Encode(), nil
}

func testLogger(t testing.TB) *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

// testEngine is an engine with its cache.
type testEngine struct {
	*Engine
	cache *testCache
}

func newTestEngine(t testing.TB, s site, port int, tr nixl.Transport, change func(*Config)) *testEngine {
	t.Helper()
	w, err := newFDWaker(tr)
	if err != nil {
		t.Fatal(err)
	}
	return startTestEngine(t, s, port, tr, w, change)
}

func startTestEngine(t testing.TB, s site, port int, tr nixl.Transport, w waker, change func(*Config)) *testEngine {
	t.Helper()
	cache := newTestCache(0xEE, 64*port%4096)
	return &testEngine{openTestEngine(t, s, port, tr, w, change, cache.layout()), cache}
}

func openTestEngine(t testing.TB, s site, port int, tr nixl.Transport, w waker, change func(*Config), layout Layout) *Engine {
	t.Helper()
	cfg := Config{EngineID: fmt.Sprintf("engine-%d", port), Host: "127.0.0.1", Port: port, CompatHash: "h", EnforceCompat: true}
	if change != nil {
		change(&cfg)
	}
	e, err := open(cfg, tr, s.fetch, testLogger(t).With("engine", port, "pp", cfg.PPRank, "tp", cfg.TPRank), w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil && !errors.Is(err, ErrState) {
			t.Errorf("close: %v", err)
		}
	})
	if err := e.Register(layout); err != nil {
		t.Fatal(err)
	}
	s[seat{port, cfg.PPRank, cfg.TPRank}] = e
	return e
}

func (e *testEngine) endpoint() Endpoint {
	return Endpoint{EngineID: e.cfg.EngineID, Host: e.cfg.Host, Port: e.cfg.Port, TPSize: 1, PPSize: 1}
}

// next waits for one event.
func (e *testEngine) next(t testing.TB, limit time.Duration) Event {
	t.Helper()
	var out [1]Event
	for stop := time.Now().Add(limit); time.Now().Before(stop); time.Sleep(200 * time.Microsecond) {
		if e.Poll(out[:]) == 1 {
			return out[0]
		}
	}
	t.Fatalf("no event within %v; stats %+v", limit, e.Stats())
	return Event{}
}

// until waits for a state.
func (e *testEngine) until(t testing.TB, what string, ok func(Stats) bool) {
	t.Helper()
	for stop := time.Now().Add(5 * time.Second); !ok(e.Stats()); time.Sleep(time.Millisecond) {
		if time.Now().After(stop) {
			t.Fatalf("not seen: %s; stats %+v", what, e.Stats())
		}
	}
}

func (e *testEngine) submit(t testing.TB, s Step) {
	t.Helper()
	if err := e.Submit(s); err != nil {
		t.Fatal(err)
	}
}

// realTransport opens an agent of the installed NIXL.
func realTransport(t testing.TB) nixl.Transport {
	t.Helper()
	root := os.Getenv("NIXLPUSH_NIXL_WHEEL_ROOT")
	tr, err := nixl.Open(nixl.Config{WheelRoot: root})
	if err != nil {
		if os.Getenv("NIXLPUSH_REQUIRE_NIXL") != "" || !strings.Contains(err.Error(), "libnixl_capi") {
			t.Fatal(err)
		}
		t.Skip("no NIXL here: ", err)
	}
	return tr
}
