package notify

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestCompletion(t *testing.T) {
	for _, id := range []string{"cmpl-x-0-0123abcd", "with:colon:3", "comma,id", ":", "ü"} {
		msg, err := Decode(Completion(id, 16))
		want := Message{Kind: KindCompletion, RequestID: id, TPSize: 16}
		if err != nil || !reflect.DeepEqual(msg, want) {
			t.Errorf("%q: %+v, %v", id, msg, err)
		}
	}
}

func TestDecodeKinds(t *testing.T) {
	for payload, want := range map[string]Kind{
		"id:1":                       KindCompletion,
		"HB:a,b":                     KindHeartbeat,
		"HB:":                        KindHeartbeat,
		"WRITING:1":                  KindWriting,
		"DONE:18:2":                  KindDone,
		"CANCEL:9223372036854775807": KindCancel,
		"CANCELLED:7":                KindCancelled,
		"FAIL:1:":                    KindFailed,
		"FAIL:1":                     KindFailed,
		"FAIL:1:a:b":                 KindFailed,
		"PUSH_FAIL:x":                KindUnknown,
		"PUSH_FAIL:id:gone":          KindUnknown,
		"id:":                        KindUnknown,
		"id:+1":                      KindUnknown,
		"id:-1":                      KindUnknown,
		"id:1.0":                     KindUnknown,
		"id:9999999999999":           KindUnknown,
		"ABORT:\xff\xfe":             KindUnknown,
	} {
		if msg, err := Decode([]byte(payload)); err != nil || msg.Kind != want {
			t.Errorf("%q: kind %d, %v; want kind %d", payload, msg.Kind, err, want)
		}
	}
}

func TestDecodeMalformed(t *testing.T) {
	long := strings.Repeat("x", MaxID+1)
	for payload, want := range map[string]string{
		"":                                    "no colon",
		"garbage":                             "no colon",
		":1":                                  "request id of 0 bytes",
		"id:0":                                "tensor parallel size 0",
		"id:99999999":                         "tensor parallel size 99999999",
		"\xff:1":                              "UTF-8",
		"HB:\xff":                             "UTF-8",
		"WRITING:":                            "epoch",
		"WRITING:\xff":                        "epoch",
		"WRITING:" + long:                     "epoch",
		"CANCEL:0":                            "not a number from 1 to 2^63-1",
		"CANCEL:-1":                           "epoch",
		"CANCEL:9223372036854775808":          "epoch",
		"CANCELLED:1:2":                       "epoch",
		"DONE:1":                              "tensor parallel size",
		"DONE:1:0":                            "tensor parallel size",
		"DONE:x:1":                            "epoch",
		"FAIL::x":                             "epoch",
		"FAIL:1:\xff":                         "UTF-8",
		"FAIL:1:" + long:                      "reason of 4097 bytes",
		"HB:" + long:                          "limit is 4096",
		long + ":1":                           "request id of 4097 bytes",
		"PUSH_REG:":                           "ends too early",
		"PUSH_REG:\x80":                       "no request_id, decode_engine_id",
		"PUSH_REG:\x90":                       "want map, got array",
		"PUSH_REG:\xc1":                       "want map",
		"PUSH_REG:\xdf\xff\xff\xff\xff":       "ends too early",
		"HB:" + strings.Repeat(",", MaxBeats): "limit is 1048576",
		"PUSH_REG:" + strings.Repeat("\x00", MaxMessage):                              "limit is 33554432",
		"PUSH_REG:\x81\xa1x" + strings.Repeat("\x91", 1<<20) + "\x00":                 "x: nested deeper",
		"PUSH_REG:\x81\xa1x" + strings.Repeat("\x81", 1<<20) + "\x00":                 "x: nested deeper",
		"PUSH_REG:\x81" + strings.Repeat("\x91", 1<<20) + "\x00":                      "nested deeper",
		"PUSH_REG:\x81\xafx" + strings.Repeat("\x91", 1<<20) + "\x00":                 "UTF-8",
		"PUSH_REG:\x81\xaflocal_block_ids\xdd\xff\xff\xff\xff\x01":                    "local_block_ids: ends too early",
		"PUSH_REG:\x81\xaflocal_block_ids\x91\xdd\xff\xff\xff\xff\x01":                "local_block_ids: ends too early",
		"PUSH_REG:\x81\xaflocal_block_ids\x92\x01\x91\x01":                            "local_block_ids: want int, got array",
		"PUSH_REG:\x81\xaflocal_block_ids\x92\x91\x01\x01":                            "local_block_ids: want array, got",
		"PUSH_REG:\x81\xaflocal_block_ids\x91\xff":                                    "local_block_ids",
		"PUSH_REG:\x81\xaflocal_block_ids\x91\xcf\x00\x00\x00\x01\x00\x00\x00\x00":    "local_block_ids",
		"PUSH_REG:\x81\xaflocal_block_ids\x91\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00":    "local_block_ids",
		"PUSH_REG:\x81\xaflocal_block_ids\xdc\x04\x01" + strings.Repeat("\x90", 1025): "1025 groups, limit is 1024",
		"PUSH_REG:\x81\xaarequest_id\xc4\x01x":                                        "request_id: want str, got bin",
		"PUSH_REG:\x81\xaarequest_id\xc0":                                             "request_id: want str, got nil",
		"PUSH_REG:\x81\xabdecode_port\xce\x00\x01\x00\x00":                            "decode_port: 65536 is not within 1 and 65535",
		"PUSH_REG:\x81\xabdecode_port\xc3":                                            "decode_port: want int, got bool",
		"PUSH_REG:\x81\xaedecode_tp_size\xff":                                         "decode_tp_size: -1 is not within",
		"PUSH_REG:\x81\xa8nixlpush\x81\xa6ttl_ms\xff":                                 "ttl_ms: -1 is not within",
		"PUSH_REG:\x81\xa8nixlpush\x01":                                               "nixlpush: want map",
	} {
		if _, err := Decode([]byte(payload)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: error %v, want %q", payload, err, want)
		}
	}
}

func TestHeartbeat(t *testing.T) {
	if got := Heartbeat([]string{"a", "b,c", "", "d:1"}); string(got) != "HB:a,d:1" {
		t.Errorf("encoded %q", got)
	}
	if got := Heartbeat([]string{"b,c", ""}); got != nil {
		t.Errorf("encoded %q, want nothing", got)
	}
	msg, err := Decode([]byte("HB:,a,,d:1,"))
	if err != nil || !reflect.DeepEqual(msg.IDs, []string{"a", "d:1"}) {
		t.Errorf("decoded %q, %v", msg.IDs, err)
	}
}

// FuzzDecode: no payload may panic, and what decodes survives encoding.
func FuzzDecode(f *testing.F) {
	f.Add(golden(f, "registration"))
	f.Add(golden(f, "registration_wide"))
	full := wideRegistration()
	full.TransferID, full.TTL, full.Epoch, full.Release = "xfer", 1e9, 1<<62, true
	f.Add(full.Encode())
	for _, seed := range []string{"HB:a,b", "id:1", "a:b:22", "WRITING:1", "DONE:1:2", "CANCEL:3", "CANCELLED:4", "FAIL:5:why", "PUSH_FAIL:x", "PUSH_REG:\x81\xa1x\x91\x91\x01", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		kept := bytes.Clone(payload)
		msg, err := Decode(payload)
		if err != nil {
			return
		}
		again, ok := msg, true
		switch msg.Kind {
		case KindRegistration:
			again, err = Decode(msg.Registration.Encode())
		case KindHeartbeat:
			beat := Heartbeat(msg.IDs)
			if ok = beat != nil; ok {
				again, err = Decode(beat)
			}
		case KindCompletion:
			again, err = Decode(Completion(msg.RequestID, msg.TPSize))
		case KindWriting:
			again, err = Decode(Writing(msg.Epoch))
		case KindDone:
			again, err = Decode(Done(msg.Epoch, msg.TPSize))
		case KindCancel:
			again, err = Decode(Cancel(msg.Epoch))
		case KindCancelled:
			again, err = Decode(Cancelled(msg.Epoch))
		case KindFailed:
			again, err = Decode(Failed(msg.Epoch, msg.Reason))
		}
		if err != nil || ok && !reflect.DeepEqual(again, msg) {
			t.Fatalf("%+v became %+v, %v", msg, again, err)
		}
		clear(payload)
		if twice, _ := Decode(kept); !reflect.DeepEqual(twice, msg) {
			t.Fatal("the message aliases the payload")
		}
	})
}

func BenchmarkCompletion(b *testing.B) {
	payload := Completion("cmpl-550e8400-e29b-41d4-a716-446655440000-0-0123abcd", 8)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(payload); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleDecode() {
	msg, _ := Decode(Completion("cmpl-1-0-0123abcd", 2))
	fmt.Println(msg.Kind == KindCompletion, msg.RequestID, msg.TPSize)
	// Output: true cmpl-1-0-0123abcd 2
}
