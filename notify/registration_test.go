package notify

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"
)

func TestRegistrationExtension(t *testing.T) {
	for _, tt := range []struct {
		name      string
		ttl, want time.Duration
		transfer  string
	}{
		{"both", 30 * time.Second, 30 * time.Second, "xfer-1"},
		{"rounded down", 1500 * time.Microsecond, time.Millisecond, ""},
		{"never zero", time.Nanosecond, time.Millisecond, ""},
		{"transfer id only", 0, 0, "xfer-2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := stockRegistration()
			want.TransferID, want.TTL = tt.transfer, tt.ttl
			msg, err := Decode(want.Encode())
			if err != nil {
				t.Fatal(err)
			}
			want.TTL = tt.want
			if !reflect.DeepEqual(*msg.Registration, want) {
				t.Errorf("decoded %+v, want %+v", *msg.Registration, want)
			}
		})
	}
}

// lenient is a registration in which everything is unusual that a stock P accepts.
func lenient() []byte {
	b := append([]byte(registrationPrefix), 0x8c) // a map of 12
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "unknown"), 2)
	b = msgp.AppendTime(msgp.AppendNil(b), time.Unix(1, 0))
	b = msgp.AppendBool(msgp.AppendInt64(b, 7), true) // a key that is no string
	b = appendString(b, "request_id", "first")
	b = appendString(b, "request_id", "last")
	b = msgp.AppendNil(msgp.AppendString(b, "remote_host"))
	b = appendString(b, "remote_port", "5600")
	b = msgp.AppendUint64(msgp.AppendString(b, "remote_tp_size"), 1<<63)
	b = appendString(b, "decode_engine_id", "d")
	b = appendString(b, "decode_host", "h")
	b = appendNumber(b, "decode_port", 1)
	b = appendNumber(b, "decode_tp_size", 2)
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "local_block_ids"), 2)
	return msgp.AppendInt64(msgp.AppendInt64(b, 300), 5) // signed, flat
}

func TestRegistrationLenient(t *testing.T) {
	msg, err := Decode(lenient())
	if err != nil {
		t.Fatal(err)
	}
	want := Registration{
		RequestID: "last", DecodeEngineID: "d", DecodeHost: "h", DecodePort: 1, DecodeTPSize: 2,
		Blocks: [][]uint32{{300, 5}},
	}
	if !reflect.DeepEqual(*msg.Registration, want) {
		t.Errorf("decoded %+v, want %+v", *msg.Registration, want)
	}
}

// Every proper prefix of a registration is an error, and so is anything after it.
func TestRegistrationCut(t *testing.T) {
	reg := wideRegistration()
	reg.TransferID, reg.TTL = "xfer", time.Second
	whole := reg.Encode()
	for n := len(registrationPrefix); n < len(whole); n++ {
		if _, err := Decode(whole[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes decode", n, len(whole))
		}
	}
	if _, err := Decode(append(whole, 0xc0)); err == nil {
		t.Error("a trailing byte is accepted")
	}
}

func TestRegistrationLimits(t *testing.T) {
	reg := stockRegistration()
	reg.Blocks = [][]uint32{make([]uint32, MaxBlocks-1), {7}}
	if _, err := Decode(reg.Encode()); err != nil {
		t.Errorf("as many blocks as allowed: %v", err)
	}
	reg.Blocks = [][]uint32{make([]uint32, MaxBlocks-1), {7, 8}}
	if _, err := Decode(reg.Encode()); err == nil {
		t.Error("one block too many is accepted")
	}
	reg.Blocks = [][]uint32{{}}
	reg.DecodeHost = string(bytes.Repeat([]byte("h"), MaxID+1))
	if _, err := Decode(reg.Encode()); err == nil {
		t.Error("a host of 4097 bytes is accepted")
	}
}

func thousandBlocks() Registration {
	r := stockRegistration()
	r.Blocks = [][]uint32{make([]uint32, 1024)}
	for i := range r.Blocks[0] {
		r.Blocks[0][i] = uint32(70000 - i)
	}
	return r
}

func BenchmarkRegistrationEncode(b *testing.B) {
	r := thousandBlocks()
	b.ReportAllocs()
	for b.Loop() {
		r.Encode()
	}
}

func BenchmarkRegistrationDecode(b *testing.B) {
	r := thousandBlocks()
	payload := r.Encode()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(payload); err != nil {
			b.Fatal(err)
		}
	}
}
