package notify

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

func TestRequestStrange(t *testing.T) {
	for _, tag := range []string{"\xc4\x01x", "\xacget_meta_msg", "\xc0"} {
		q, err := DecodeRequest([]byte("\x93" + tag + "\x01\x02"))
		if err != nil || q != (Request{PP: 1, TP: 2, Strange: true}) {
			t.Errorf("%q: %+v, %v", tag, q, err)
		}
	}
}

func TestRequestMalformed(t *testing.T) {
	for payload, want := range map[string]string{
		"":                            "ends too early",
		"get_meta_msg":                "want array",
		"\x92\xc0\x00":                "array of 2",
		"\x93\xc0\x00":                "ends too early",
		"\x93\xc0\x00\xff":            "tp rank: -1 is not within",
		"\x93\xc0\xa1x\x00":           "pp rank: want int, got str",
		"\x93\xc0\x00\x00\x00":        "left over",
		"\x93\xc4\xff\x00\x00":        "ends too early",
		"\xdd\xff\xff\xff\xff\xc0":    "ends too early",
		strings.Repeat("\x91", 1<<11): "limit is 1024",
		"\x93" + strings.Repeat("\x91", 500) + "\x00": "nested deeper",
	} {
		if _, err := DecodeRequest([]byte(payload)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error %v, want %q", payload, err, want)
		}
	}
}

func TestRefusal(t *testing.T) {
	p, err := DecodePayload(Payload{Refusal: "no rank (pp 1, tp 0); have (0,0)"}.Encode())
	if err != nil || p.Refusal != "no rank (pp 1, tp 0); have (0,0)" {
		t.Errorf("decoded %+v, %v", p, err)
	}
	if !strings.Contains(p.CompatHash, p.Refusal) {
		t.Errorf("a stock engine would only see the hash %q", p.CompatHash)
	}
	m, err := DecodeAgentMetadata(p.AgentMetadata)
	if err != nil || !strings.Contains(m.EngineID, p.Refusal) {
		t.Errorf("a stock engine that ignores hashes would see %+v, %v", m, err)
	}
}

func TestPayloadMalformed(t *testing.T) {
	whole := Payload{CompatHash: "h", AgentMetadata: []byte("abc")}.Encode()
	for n := range whole {
		if _, err := DecodePayload(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes decode", n, len(whole))
		}
	}
	for payload, want := range map[string]string{
		"\x80":                                "no compatibility_hash, agent_metadata_bytes",
		"\xa1x":                               "want map, got str",
		"\x81\xb2compatibility_hash\xc4\x01x": "compatibility_hash: want str, got bin",
		"\x81\xb4agent_metadata_bytes\xa1x":   "agent_metadata_bytes: want bin, got str",
		"\x81\xb4agent_metadata_bytes\xc6\xff\xff\xff\xff": "agent_metadata_bytes: ends too early",
	} {
		if _, err := DecodePayload([]byte(payload)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error %v, want %q", payload, err, want)
		}
	}
	if _, err := DecodePayload(make([]byte, MaxMetadata+1)); err == nil {
		t.Error("an oversized payload is accepted")
	}
}

func TestDecodeClock(t *testing.T) {
	for payload, want := range map[string]float64{
		"\x05": 5, "\xff": -1, "\xca\x3f\xc0\x00\x00": 1.5, "\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00": 1.5,
	} {
		if got, err := DecodeClock([]byte(payload)); err != nil || got != want {
			t.Errorf("%q: %v, %v", payload, got, err)
		}
	}
	for _, payload := range []string{"", "\xcb\x3f", "\xa1x", "\x05\x05"} {
		if _, err := DecodeClock([]byte(payload)); err == nil {
			t.Errorf("%q is accepted", payload)
		}
	}
}

func TestMetadataExtension(t *testing.T) {
	want := stockMetadata()
	want.Extension = &Extension{
		Version: 1, Features: []string{"cancel", "part"}, Factors: map[string]string{"model": "m", "dtype": "f16"},
	}
	got, err := DecodeAgentMetadata(want.Encode())
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("decoded %+v, %v", got, err)
	}
	if !got.Extension.Has("part") || got.Extension.Has("p") || (*Extension)(nil).Has("part") {
		t.Error("features are not told apart")
	}
}

// Absent keys take vLLM's defaults; unknown ones are passed over.
func TestMetadataDefaults(t *testing.T) {
	m := stockMetadata()
	b := append([]byte{0x8d}, m.appendCache(nil)...)
	b = append(msgp.AppendString(b, "from the future"), 0x81, 0xa1, 'x', 0x91, 0xc0)
	got, err := DecodeAgentMetadata(b)
	m.RegionMembers, m.PackedMemberLayouts = nil, nil
	if err != nil || !reflect.DeepEqual(*got, m) {
		t.Errorf("decoded %+v, %v", got, err)
	}
}

func TestMetadataMalformed(t *testing.T) {
	m := fullMetadata()
	m.Extension = &Extension{Features: []string{"a"}, Factors: map[string]string{"k": "v"}}
	whole := m.Encode()
	for n := range whole {
		if _, err := DecodeAgentMetadata(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes decode", n, len(whole))
		}
	}
	for payload, want := range map[string]string{
		"\x80":                                              "no engine_id, agent_metadata, kv_caches_base_addr",
		"\x81\xa9engine_id\xc0":                             "engine_id: want str, got nil",
		"\x81\xa9device_id\xc3":                             "device_id: want int, got bool",
		"\x81\xa9ssm_sizes\x93\x01":                         "ssm_sizes",
		"\x81\xa9ssm_sizes\x93\x01\x02\x03":                 "ssm_sizes: array of 3, want 2",
		"\x81\xaablock_lens\x91\xff":                        "block_lens",
		"\x81\xaablock_lens\xdd\x7f\xff\xff\xff\x01":        "block_lens: ends too early",
		"\x81\xb3kv_caches_base_addr\xdd\xff\xff\xff\xff":   "kv_caches_base_addr: ends too early",
		"\x81\xb5packed_member_layouts\xdf\xff\xff\xff\xff": "packed_member_layouts: ends too early",
		"\x81\xb5packed_member_layouts\x81\x01\x92\x00\x00": "packed_member_layouts: want str",
		"\x81\xaeregion_members\x91\xdd\x7f\xff\xff\xff":    "region_members: ends too early",
	} {
		if _, err := DecodeAgentMetadata([]byte(payload)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error %v, want %q", payload, err, want)
		}
	}
}

// Lists of lists must not multiply a small message into much memory.
func TestMetadataMembersBounded(t *testing.T) {
	inner := append(msgp.AppendArrayHeader(nil, 1<<17), bytes.Repeat([]byte{0xa0}, 1<<17)...)
	b := append([]byte{0x81}, msgp.AppendArrayHeader(msgp.AppendString(nil, "region_members"), 100)...)
	b = append(b, bytes.Repeat(inner, 100)...)
	if _, err := DecodeAgentMetadata(b); err == nil || !strings.Contains(err.Error(), "limit is") {
		t.Errorf("13 million member names: %v", err)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add(golden(f, "request_0_0"))
	f.Add(golden(f, "request_3_200"))
	f.Add([]byte("\x93\xc0\x01\x02"))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := DecodeRequest(b)
		if err != nil {
			return
		}
		q.Strange = false
		if again, err := DecodeRequest(q.Encode()); err != nil || again != q {
			t.Fatalf("%+v became %+v, %v", q, again, err)
		}
	})
}

func FuzzDecodePayload(f *testing.F) {
	f.Add(golden(f, "payload"))
	f.Add(Payload{Refusal: "why"}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePayload(b)
		if err != nil || p.Refusal != "" {
			return
		}
		again, err := DecodePayload(p.Encode())
		if err != nil || again.CompatHash != p.CompatHash || !bytes.Equal(again.AgentMetadata, p.AgentMetadata) {
			t.Fatalf("%+v became %+v, %v", p, again, err)
		}
	})
}

func FuzzDecodeAgentMetadata(f *testing.F) {
	f.Add(golden(f, "metadata"))
	f.Add(golden(f, "metadata_full"))
	m := fullMetadata()
	m.Extension = &Extension{Features: []string{"a"}, Factors: map[string]string{"k": "v"}, Cache: described()}
	f.Add(m.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeAgentMetadata(b)
		if err != nil {
			return
		}
		first := m.Encode()
		again, err := DecodeAgentMetadata(first)
		if err != nil || !bytes.Equal(again.Encode(), first) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}

func FuzzDecodeClock(f *testing.F) {
	f.Add(golden(f, "clock"))
	f.Add([]byte{5})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeClock(b)
		if err != nil || s != s {
			return
		}
		if again, err := DecodeClock(EncodeClock(s)); err != nil || again != s {
			t.Fatalf("%v became %v, %v", s, again, err)
		}
	})
}
