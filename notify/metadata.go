package notify

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// AgentMetadata describes the KV cache of one worker and how to reach its NIXL agent.
// Fields and their meaning are those of vLLM's NixlAgentMetadata. Sizes are bytes unless
// said otherwise. A nil slice or pointer that stands for "None" says so.
type AgentMetadata struct {
	EngineID           string
	AgentMetadata      []byte   // of the NIXL agent
	BaseAddrs          []uint64 // per region
	DeviceID           int
	NumBlocks          int      // kernel blocks of a region
	BlockLens          []uint64 // per region
	BlockStrides       []uint64 // per region
	CacheLayout        string
	BlockSize          int // tokens of a kernel block
	SSMSizes           [2]int
	AttnBackend        string
	PhysicalPerLogical int // kernel blocks of a logical block

	RegionNumBlocks []int    // nil: None
	RegionGroupIDs  []int    // nil: None; -1: region shared by several groups
	RegionNames     []string // nil: None
	RegionMemTypes  []string // nil: None

	DCPSize             int  // decoded 1 if absent
	PCPSize             int  // decoded 1 if absent
	PLEBlockLen         *int // nil: None
	RegionMembers       [][]string
	PackedMemberLayouts map[string][2]int // name -> offset within the block, size of a page

	Extension *Extension // nil: a stock engine
}

var metadataKeys = []string{
	"engine_id", "agent_metadata", "kv_caches_base_addr", "device_id", "num_blocks", "block_lens",
	"block_strides", "kv_cache_layout", "block_size", "ssm_sizes", "attn_backend_name",
	"physical_blocks_per_logical_kv_block",
}

// Encode returns the metadata as vLLM's encoder writes it, the extension last.
func (m *AgentMetadata) Encode() []byte {
	n := uint32(21)
	if m.Extension != nil {
		n++
	}
	b := msgp.AppendMapHeader(make([]byte, 0, 1024+len(m.AgentMetadata)+32*len(m.BaseAddrs)), n)
	b = m.appendCache(b)
	b = m.appendRegions(b)
	if m.Extension != nil {
		b = appendExtension(b, m.Extension)
	}
	return b
}

func (m *AgentMetadata) appendCache(b []byte) []byte {
	b = appendString(b, "engine_id", m.EngineID)
	b = msgp.AppendBytes(msgp.AppendString(b, "agent_metadata"), m.AgentMetadata)
	b = appendUints(b, "kv_caches_base_addr", m.BaseAddrs)
	b = appendNumber(b, "device_id", m.DeviceID)
	b = appendNumber(b, "num_blocks", m.NumBlocks)
	b = appendUints(b, "block_lens", m.BlockLens)
	b = appendUints(b, "block_strides", m.BlockStrides)
	b = appendString(b, "kv_cache_layout", m.CacheLayout)
	b = appendNumber(b, "block_size", m.BlockSize)
	b = appendPair(msgp.AppendString(b, "ssm_sizes"), m.SSMSizes)
	b = appendString(b, "attn_backend_name", m.AttnBackend)
	return appendNumber(b, "physical_blocks_per_logical_kv_block", m.PhysicalPerLogical)
}

func (m *AgentMetadata) appendRegions(b []byte) []byte {
	b = appendInts(b, "region_num_blocks", m.RegionNumBlocks)
	b = appendInts(b, "region_group_ids", m.RegionGroupIDs)
	b = appendOptionalNames(b, "region_names", m.RegionNames)
	b = appendOptionalNames(b, "region_mem_types", m.RegionMemTypes)
	b = appendNumber(b, "dcp_size", max(m.DCPSize, 1))
	b = appendNumber(b, "pcp_size", max(m.PCPSize, 1))
	b = msgp.AppendString(b, "ple_block_len")
	if m.PLEBlockLen == nil {
		b = msgp.AppendNil(b)
	} else {
		b = appendInt(b, int64(*m.PLEBlockLen))
	}
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "region_members"), uint32(len(m.RegionMembers)))
	for _, names := range m.RegionMembers {
		b = appendNames(b, names)
	}
	b = msgp.AppendMapHeader(msgp.AppendString(b, "packed_member_layouts"), uint32(len(m.PackedMemberLayouts)))
	for _, name := range slices.Sorted(maps.Keys(m.PackedMemberLayouts)) {
		b = appendPair(msgp.AppendString(b, name), m.PackedMemberLayouts[name])
	}
	return b
}

func appendUints(b []byte, key string, values []uint64) []byte {
	b = msgp.AppendArrayHeader(msgp.AppendString(b, key), uint32(len(values)))
	for _, v := range values {
		b = msgp.AppendUint64(b, v)
	}
	return b
}

func appendInts(b []byte, key string, values []int) []byte {
	b = msgp.AppendString(b, key)
	if values == nil {
		return msgp.AppendNil(b)
	}
	b = msgp.AppendArrayHeader(b, uint32(len(values)))
	for _, v := range values {
		b = appendInt(b, int64(v))
	}
	return b
}

func appendOptionalNames(b []byte, key string, names []string) []byte {
	b = msgp.AppendString(b, key)
	if names == nil {
		return msgp.AppendNil(b)
	}
	return appendNames(b, names)
}

func appendNames(b []byte, names []string) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(names)))
	for _, name := range names {
		b = msgp.AppendString(b, name)
	}
	return b
}

func appendPair(b []byte, pair [2]int) []byte {
	b = msgp.AppendArrayHeader(b, 2)
	return appendInt(appendInt(b, int64(pair[0])), int64(pair[1]))
}

// DecodeAgentMetadata reads what [Payload.AgentMetadata] holds. It refuses what vLLM's
// typed decoder refuses: an absent key without default, a value of another type. The
// AgentMetadata field of the result aliases b.
func DecodeAgentMetadata(b []byte) (*AgentMetadata, error) {
	m, err := decodeMetadata(b)
	if err != nil {
		return nil, fmt.Errorf("decode agent metadata: %w", err)
	}
	return m, nil
}

func decodeMetadata(b []byte) (*AgentMetadata, error) {
	if len(b) > MaxMetadata {
		return nil, fmt.Errorf("%d bytes, limit is %d", len(b), MaxMetadata)
	}
	r := reader{b: b}
	m := &AgentMetadata{DCPSize: 1, PCPSize: 1}
	var has uint
	for n := r.object(math.MaxInt32); n > 0 && r.err == nil; n-- {
		key := string(r.key())
		if i := slices.Index(metadataKeys, key); i >= 0 {
			has |= 1 << i
			m.decodeCache(&r, key)
		} else {
			m.decodeRegions(&r, key)
		}
	}
	r.end()
	if r.err != nil {
		return nil, r.err
	}
	if missing := missingKeys(metadataKeys, has); missing != "" {
		return nil, errors.New("no " + missing)
	}
	return m, nil
}

// decodeCache reads the keys that have no default.
func (m *AgentMetadata) decodeCache(r *reader, key string) {
	switch key {
	case "engine_id":
		m.EngineID = r.str(MaxID)
	case "agent_metadata":
		m.AgentMetadata = r.bin()
	case "kv_caches_base_addr":
		m.BaseAddrs = r.uints()
	case "device_id":
		m.DeviceID = r.anyInt()
	case "num_blocks":
		m.NumBlocks = r.anyInt()
	case "block_lens":
		m.BlockLens = r.uints()
	case "block_strides":
		m.BlockStrides = r.uints()
	case "kv_cache_layout":
		m.CacheLayout = r.str(MaxID)
	case "block_size":
		m.BlockSize = r.anyInt()
	case "ssm_sizes":
		m.SSMSizes = r.pair()
	case "attn_backend_name":
		m.AttnBackend = r.str(MaxID)
	case "physical_blocks_per_logical_kv_block":
		m.PhysicalPerLogical = r.anyInt()
	}
}

// decodeRegions reads the keys that may be absent, and passes over foreign ones.
func (m *AgentMetadata) decodeRegions(r *reader, key string) {
	switch key {
	case "region_num_blocks":
		m.RegionNumBlocks = optional(r, (*reader).ints)
	case "region_group_ids":
		m.RegionGroupIDs = optional(r, (*reader).ints)
	case "region_names":
		m.RegionNames = optional(r, (*reader).names)
	case "region_mem_types":
		m.RegionMemTypes = optional(r, (*reader).names)
	case "dcp_size":
		m.DCPSize = r.anyInt()
	case "pcp_size":
		m.PCPSize = r.anyInt()
	case "ple_block_len":
		m.PLEBlockLen = optional(r, func(r *reader) *int { n := r.anyInt(); return &n })
	case "region_members":
		m.RegionMembers = r.members()
	case "packed_member_layouts":
		m.PackedMemberLayouts = r.layouts()
	case extensionKey:
		m.Extension = r.extension()
	default:
		r.skip()
	}
}

// optional reads a value that may be nil.
func optional[T any](r *reader, read func(*reader) T) (none T) {
	if r.isNil() {
		r.skip()
		return none
	}
	return read(r)
}

func (r *reader) anyInt() int { return int(r.int(math.MinInt64, math.MaxInt64)) }

func (r *reader) uints() []uint64 {
	list := make([]uint64, r.array(MaxRegions))
	for i := range list {
		if list[i] = r.uint64(); r.err != nil {
			return nil
		}
	}
	return list
}

func (r *reader) ints() []int {
	list := make([]int, r.array(MaxRegions))
	for i := range list {
		if list[i] = r.anyInt(); r.err != nil {
			return nil
		}
	}
	return list
}

func (r *reader) names() []string { return r.strings(MaxRegions) }

func (r *reader) pair() (pair [2]int) {
	if n := r.array(MaxRegions); n != 2 && r.err == nil {
		r.failf("array of %d, want 2", n)
	}
	pair[0] = r.anyInt()
	pair[1] = r.anyInt()
	return pair
}

func (r *reader) members() [][]string {
	n := r.array(MaxRegions)
	list, left := make([][]string, 0, n), MaxRegions
	for ; n > 0 && r.err == nil; n-- {
		names := r.strings(left)
		left -= len(names)
		list = append(list, names)
	}
	return list
}

func (r *reader) layouts() map[string][2]int {
	n := r.object(MaxRegions)
	layouts := make(map[string][2]int, n)
	for ; n > 0 && r.err == nil; n-- {
		key := r.str(MaxID)
		layouts[key] = r.pair()
	}
	return layouts
}
