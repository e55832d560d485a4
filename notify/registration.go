package notify

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/tinylib/msgp/msgp"
)

// Registration is what D sends to each producer rank that shall write into its blocks.
type Registration struct {
	RequestID  string // D's id, echoed in the completion
	TransferID string // made by the router for both legs; may be empty

	// Where P finds D's side channel, and who it must find there.
	DecodeEngineID string
	DecodeHost     string
	DecodePort     int
	DecodeTPSize   int

	// Blocks are D's logical block ids, one list per transfer group, in token order.
	Blocks [][]uint32

	// P's own coordinates as D knows them. Nobody relies on them: decoded, they are zero
	// where absent or not of the usual type.
	RemoteEngineID string
	RemoteHost     string
	RemotePort     int
	RemoteTPSize   int
	RemotePPSize   int

	// TTL is how long after its arrival P may still post the WRITE; 0 if D does not say
	// (a stock engine never does). It travels in whole milliseconds, rounded down, but
	// at least one.
	TTL time.Duration
	// Epoch names this registration in what the two engines tell each other about it: a
	// number that the sender uses once, below 2^63. 0: the engine knows no epochs.
	Epoch uint64
	// Release says that D needs nothing any more and does not wait: P may have the blocks
	// back. It goes to whom the transfer id names.
	Release bool
}

// The keys that stock engines read on arrival; all of them must be there.
const (
	hasRequestID = 1 << iota
	hasDecodeEngineID
	hasDecodeHost
	hasDecodePort
	hasDecodeTPSize
	hasBlocks
)

var registrationKeys = []string{
	"request_id", "decode_engine_id", "decode_host", "decode_port", "decode_tp_size", "local_block_ids",
}

// Encode returns the notification. Keys have the order and values the form that vLLM's
// encoder gives them.
func (r *Registration) Encode() []byte {
	b := append(make([]byte, 0, r.size()), registrationPrefix...)
	n := uint32(11)
	if r.TransferID != "" {
		n++
	}
	extended := r.TTL > 0 || r.Epoch > 0 || r.Release
	if extended {
		n++
	}
	b = msgp.AppendMapHeader(b, n)
	b = appendString(b, "request_id", r.RequestID)
	b = appendString(b, "decode_engine_id", r.DecodeEngineID)
	b = appendString(b, "decode_host", r.DecodeHost)
	b = appendNumber(b, "decode_port", r.DecodePort)
	b = appendNumber(b, "decode_tp_size", r.DecodeTPSize)
	b = appendBlocks(msgp.AppendString(b, "local_block_ids"), r.Blocks)
	b = appendString(b, "remote_engine_id", r.RemoteEngineID)
	b = appendString(b, "remote_host", r.RemoteHost)
	b = appendNumber(b, "remote_port", r.RemotePort)
	b = appendNumber(b, "remote_tp_size", r.RemoteTPSize)
	b = appendNumber(b, "remote_pp_size", r.RemotePPSize)
	if r.TransferID != "" {
		b = appendString(b, "transfer_id", r.TransferID)
	}
	if extended {
		b = r.appendExtension(msgp.AppendString(b, extensionKey))
	}
	return b
}

func (r *Registration) appendExtension(b []byte) []byte {
	keys := uint32(1)
	if r.TTL > 0 {
		keys++
	}
	if r.Epoch > 0 {
		keys++
	}
	if r.Release {
		keys++
	}
	b = appendNumber(msgp.AppendMapHeader(b, keys), "v", extensionVersion)
	if r.TTL > 0 {
		b = appendNumber(b, "ttl_ms", int(max(r.TTL.Milliseconds(), 1)))
	}
	if r.Epoch > 0 {
		b = appendNumber(b, "epoch", int(r.Epoch))
	}
	if r.Release {
		b = msgp.AppendBool(msgp.AppendString(b, "release"), true)
	}
	return b
}

// size is an upper bound of the encoded length.
func (r *Registration) size() int {
	n := 512 + len(r.RequestID) + len(r.TransferID) + len(r.DecodeEngineID) + len(r.DecodeHost) +
		len(r.RemoteEngineID) + len(r.RemoteHost)
	for _, group := range r.Blocks {
		n += 5 + 5*len(group)
	}
	return n
}

func appendString(b []byte, key, value string) []byte {
	return msgp.AppendString(msgp.AppendString(b, key), value)
}

func appendNumber(b []byte, key string, value int) []byte {
	return appendInt(msgp.AppendString(b, key), int64(value))
}

func appendBlocks(b []byte, groups [][]uint32) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(groups)))
	for _, group := range groups {
		b = msgp.AppendArrayHeader(b, uint32(len(group)))
		for _, id := range group {
			b = appendBlock(b, id)
		}
	}
	return b
}

// appendBlock is msgp.AppendUint32 in a form that the compiler inlines: there can be
// thousands of ids.
func appendBlock(b []byte, id uint32) []byte {
	switch {
	case id < 1<<7:
		return append(b, byte(id))
	case id < 1<<8:
		return append(b, 0xcc, byte(id))
	case id < 1<<16:
		return append(b, 0xcd, byte(id>>8), byte(id))
	default:
		return append(b, 0xce, byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	}
}

func decodeRegistration(body []byte) (*Registration, error) {
	r := reader{b: body}
	reg := &Registration{}
	var has uint
	for n := r.object(math.MaxInt32); n > 0 && r.err == nil; n-- {
		has |= reg.decodeKey(&r, r.key())
	}
	r.end()
	if r.err != nil {
		return nil, r.err
	}
	if missing := missingKeys(registrationKeys, has); missing != "" {
		return nil, errors.New("no " + missing)
	}
	return reg, nil
}

// decodeKey reads the value of one key and says which of the needed ones it was. Of a
// key that comes twice the last value counts, as in Python.
func (reg *Registration) decodeKey(r *reader, key []byte) uint {
	switch string(key) {
	case "request_id":
		reg.RequestID = r.str(MaxID)
		return hasRequestID
	case "decode_engine_id":
		reg.DecodeEngineID = r.str(MaxID)
		return hasDecodeEngineID
	case "decode_host":
		reg.DecodeHost = r.str(MaxID)
		return hasDecodeHost
	case "decode_port":
		reg.DecodePort = int(r.int(1, maxPort))
		return hasDecodePort
	case "decode_tp_size":
		reg.DecodeTPSize = int(r.int(1, maxParallel))
		return hasDecodeTPSize
	case "local_block_ids":
		reg.Blocks = r.blocks()
		return hasBlocks
	case "transfer_id":
		reg.TransferID = r.optionalStr()
	case "remote_engine_id":
		reg.RemoteEngineID = r.optionalStr()
	case "remote_host":
		reg.RemoteHost = r.optionalStr()
	case "remote_port":
		reg.RemotePort = r.optionalInt()
	case "remote_tp_size":
		reg.RemoteTPSize = r.optionalInt()
	case "remote_pp_size":
		reg.RemotePPSize = r.optionalInt()
	case extensionKey:
		reg.decodeExtension(r)
	default:
		r.skip()
	}
	return 0
}

// optionalStr passes over what is not a string: stock engines do not look at it.
func (r *reader) optionalStr() string {
	if !r.is(msgp.StrType) {
		r.skip()
		return ""
	}
	return r.str(MaxID)
}

func (r *reader) optionalInt() int {
	if !r.isInt() {
		r.skip()
		return 0
	}
	v, rest, err := msgp.ReadInt64Bytes(r.b)
	if err != nil {
		r.skip()
		return 0
	}
	r.b = rest
	return int(v)
}

// blocks reads one list per group, or a flat list, which is one group.
func (r *reader) blocks() [][]uint32 {
	flat := *r
	n := r.array(MaxBlocks)
	if n > 0 && r.isInt() {
		*r = flat
		return [][]uint32{r.group(MaxBlocks)}
	}
	if n > MaxGroups {
		r.failf("%d groups, limit is %d", n, MaxGroups)
		return nil
	}
	groups, left := make([][]uint32, 0, n), MaxBlocks
	for ; n > 0 && r.err == nil; n-- {
		group := r.group(left)
		left -= len(group)
		groups = append(groups, group)
	}
	return groups
}

func (r *reader) group(limit int) []uint32 {
	ids := make([]uint32, r.array(limit))
	for i := range ids {
		if ids[i] = r.block(); r.err != nil {
			return nil
		}
	}
	return ids
}

// block reads one id. The forms that encoders use are taken apart here, because there
// can be thousands of them; the rest (signed ints, errors) is left to msgp.
func (r *reader) block() uint32 {
	b := r.b
	switch {
	case len(b) >= 1 && b[0] < 0x80:
		r.b = b[1:]
		return uint32(b[0])
	case len(b) >= 2 && b[0] == 0xcc:
		r.b = b[2:]
		return uint32(b[1])
	case len(b) >= 3 && b[0] == 0xcd:
		r.b = b[3:]
		return uint32(binary.BigEndian.Uint16(b[1:]))
	case len(b) >= 5 && b[0] == 0xce:
		r.b = b[5:]
		return binary.BigEndian.Uint32(b[1:])
	default:
		return r.uint32()
	}
}

// decodeExtension reads nixlpush's own part of a registration.
func (reg *Registration) decodeExtension(r *reader) {
	for n := r.object(math.MaxInt32); n > 0 && r.err == nil; n-- {
		switch string(r.key()) {
		case "ttl_ms":
			reg.TTL = time.Duration(r.int(0, int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
		case "epoch":
			reg.Epoch = uint64(r.int(0, math.MaxInt64))
		case "release":
			reg.Release = r.bool()
		default:
			r.skip()
		}
	}
}

// missingKeys lists the keys whose bit is not set.
func missingKeys(keys []string, has uint) string {
	var missing []string
	for i, key := range keys {
		if has&(1<<i) == 0 {
			missing = append(missing, key)
		}
	}
	return strings.Join(missing, ", ")
}
