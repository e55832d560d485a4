package notify

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
)

// golden returns a message that a stock engine has encoded (testdata/golden.py).
func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]string
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(all[name])
	if err != nil || len(data) == 0 {
		t.Fatalf("golden message %q: %v", name, err)
	}
	return data
}

func stockRegistration() Registration {
	return Registration{
		RequestID:      "id-1",
		DecodeEngineID: "fba8d3a4-3c5e-4a0e-9f7b-0c8f5f2f6f10",
		DecodeHost:     "localhost",
		DecodePort:     5600,
		DecodeTPSize:   1,
		Blocks:         [][]uint32{{1, 2, 3}},
		RemoteEngineID: "my-engine-id",
		RemoteHost:     "my-host",
		RemotePort:     1234,
		RemoteTPSize:   1,
		RemotePPSize:   1,
	}
}

func wideRegistration() Registration {
	r := stockRegistration()
	r.RequestID = "cmpl-" + strings.Repeat("ü", 200) + "-0-0123abcd"
	r.DecodePort = 65535
	r.DecodeTPSize = 128
	r.Blocks = [][]uint32{{0, 127, 128, 255, 256, 65535, 65536, 4294967295}, {}, {}}
	for i := range uint32(40) {
		r.Blocks[2] = append(r.Blocks[2], 1000+i)
	}
	r.RemotePort = 127
	return r
}

func stockMetadata() AgentMetadata {
	secret := make([]byte, 512)
	for i := range secret {
		secret[i] = byte(i)
	}
	return AgentMetadata{
		EngineID:            "engine-0",
		AgentMetadata:       secret,
		BaseAddrs:           []uint64{0x7f0000000000, 1<<64 - 1, 5},
		NumBlocks:           1024,
		BlockLens:           []uint64{32768, 32768, 32768},
		BlockStrides:        []uint64{32768, 65536, 32768},
		CacheLayout:         "LBHNC",
		BlockSize:           16,
		AttnBackend:         "CPU_ATTN",
		PhysicalPerLogical:  1,
		DCPSize:             1,
		PCPSize:             1,
		RegionMembers:       [][]string{},
		PackedMemberLayouts: map[string][2]int{},
	}
}

func fullMetadata() AgentMetadata {
	ple := 12345
	return AgentMetadata{
		EngineID:            "engine-1",
		AgentMetadata:       []byte{},
		BaseAddrs:           []uint64{4096},
		DeviceID:            -1,
		BlockLens:           []uint64{70000},
		BlockStrides:        []uint64{70001},
		CacheLayout:         "BLHNC",
		BlockSize:           128,
		SSMSizes:            [2]int{6144, 1048576},
		AttnBackend:         "FLASH_ATTN",
		PhysicalPerLogical:  4,
		RegionNumBlocks:     []int{10, 20},
		RegionGroupIDs:      []int{0, -1, -40000},
		RegionNames:         []string{"model.layers.0.self_attn.attn"},
		RegionMemTypes:      []string{"VRAM", "DRAM"},
		DCPSize:             2,
		PCPSize:             3,
		PLEBlockLen:         &ple,
		RegionMembers:       [][]string{{"a", "b"}, {}, {"c"}},
		PackedMemberLayouts: map[string][2]int{"x": {0, 100}, "y": {100, 65536}},
	}
}

func TestRegistrationIsStocks(t *testing.T) {
	for name, want := range map[string]Registration{
		"registration": stockRegistration(), "registration_wide": wideRegistration(),
	} {
		t.Run(name, func(t *testing.T) {
			stock := golden(t, name)
			if got := want.Encode(); !bytes.Equal(got, stock) {
				t.Errorf("encoded\n%x\nstock\n%x", got, stock)
			}
			msg, err := Decode(stock)
			if err != nil || msg.Kind != KindRegistration {
				t.Fatalf("decode: kind %d, %v", msg.Kind, err)
			}
			if !reflect.DeepEqual(*msg.Registration, want) {
				t.Errorf("decoded %+v, want %+v", *msg.Registration, want)
			}
		})
	}
}

func TestMetadataIsStocks(t *testing.T) {
	for name, want := range map[string]AgentMetadata{
		"metadata": stockMetadata(), "metadata_full": fullMetadata(),
	} {
		t.Run(name, func(t *testing.T) {
			stock := golden(t, name)
			if got := want.Encode(); !bytes.Equal(got, stock) {
				t.Errorf("encoded\n%x\nstock\n%x", got, stock)
			}
			got, err := DecodeAgentMetadata(stock)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(*got, want) {
				t.Errorf("decoded %+v, want %+v", *got, want)
			}
		})
	}
}

func TestPayloadIsStocks(t *testing.T) {
	want := Payload{CompatHash: strings.Repeat("h", 64), AgentMetadata: bytes.Repeat([]byte("x"), 300)}
	stock := golden(t, "payload")
	if got := want.Encode(); !bytes.Equal(got, stock) {
		t.Errorf("encoded\n%x\nstock\n%x", got, stock)
	}
	got, err := DecodePayload(stock)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("decoded %+v, %v", got, err)
	}
}

func TestRequestIsStocks(t *testing.T) {
	for name, want := range map[string]Request{"request_0_0": {}, "request_3_200": {PP: 3, TP: 200}} {
		stock := golden(t, name)
		if got := want.Encode(); !bytes.Equal(got, stock) {
			t.Errorf("%s: encoded %x, stock %x", name, got, stock)
		}
		if got, err := DecodeRequest(stock); err != nil || got != want {
			t.Errorf("%s: decoded %+v, %v", name, got, err)
		}
	}
}

func TestClockIsStocks(t *testing.T) {
	stock := golden(t, "clock")
	if got := EncodeClock(1234.5); !bytes.Equal(got, stock) {
		t.Errorf("encoded %x, stock %x", got, stock)
	}
	if got, err := DecodeClock(stock); err != nil || got != 1234.5 {
		t.Errorf("decoded %v, %v", got, err)
	}
}
