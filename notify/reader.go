package notify

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

var (
	errShort    = errors.New("ends too early")
	errTrailing = errors.New("bytes left over at the end")
	errDepth    = fmt.Errorf("nested deeper than %d", maxDepth)
	errUTF8     = errors.New("string is not valid UTF-8")
)

// reader takes msgpack values off the front of a buffer. The first error stays: after
// it, reads return zero values and key loops end.
type reader struct {
	b   []byte
	at  []byte // the key whose value is being read, for error texts
	err error
}

func (r *reader) fail(err error) {
	if r.err != nil {
		return
	}
	if len(r.at) > 0 {
		err = fmt.Errorf("%s: %w", r.at, err)
	}
	r.err = err
	r.b = nil
}

func (r *reader) failf(format string, args ...any) { r.fail(fmt.Errorf(format, args...)) }

// is reports whether the next value is of type t.
func (r *reader) is(t msgp.Type) bool { return len(r.b) > 0 && msgp.NextType(r.b) == t }

func (r *reader) isInt() bool { return r.is(msgp.IntType) || r.is(msgp.UintType) }

func (r *reader) isNil() bool { return r.is(msgp.NilType) }

// want fails unless ok, which says that the next value is of the type called name.
func (r *reader) want(ok bool, name string) bool {
	switch {
	case r.err != nil:
		return false
	case ok:
		return true
	case len(r.b) == 0:
		r.fail(errShort)
	default:
		r.failf("want %s, got %s", name, msgp.NextType(r.b))
	}
	return false
}

// done keeps the rest of the buffer after a read.
func (r *reader) done(rest []byte, err error) bool {
	if errors.Is(err, msgp.ErrShortBytes) {
		err = errShort
	}
	if err != nil {
		r.fail(err)
		return false
	}
	r.b = rest
	return true
}

// array reads an array header. Each element takes at least one byte, so the count it
// returns never exceeds the bytes that are there.
func (r *reader) array(limit int) int {
	if !r.want(r.is(msgp.ArrayType), "array") {
		return 0
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(r.b)
	if !r.done(rest, err) {
		return 0
	}
	return r.count(n, limit, 1)
}

// object reads a map header; its entries are read with key.
func (r *reader) object(limit int) int {
	if !r.want(r.is(msgp.MapType), "map") {
		return 0
	}
	n, rest, err := msgp.ReadMapHeaderBytes(r.b)
	if !r.done(rest, err) {
		return 0
	}
	return r.count(n, limit, 2)
}

func (r *reader) count(n uint32, limit, size int) int {
	if int64(n)*int64(size) > int64(len(r.b)) {
		r.fail(errShort)
		return 0
	}
	if int64(n) > int64(limit) {
		r.failf("%d entries, limit is %d", n, limit)
		return 0
	}
	return int(n)
}

// key reads the next key of a map; it aliases the buffer. A key that is not a string
// yields nil.
func (r *reader) key() []byte {
	r.at = nil
	if r.err == nil && len(r.b) > 0 && !r.is(msgp.StrType) {
		r.skip()
		return nil
	}
	r.at = r.text(MaxID)
	return r.at
}

func (r *reader) str(limit int) string { return string(r.text(limit)) }

// text reads a string; the result aliases the buffer.
func (r *reader) text(limit int) []byte {
	if !r.want(r.is(msgp.StrType), "str") {
		return nil
	}
	s, rest, err := msgp.ReadStringZC(r.b)
	if !r.done(rest, err) {
		return nil
	}
	if len(s) > limit {
		r.failf("string of %d bytes, limit is %d", len(s), limit)
		return nil
	}
	if !utf8.Valid(s) {
		r.fail(errUTF8)
		return nil
	}
	return s
}

// bin returns bytes that alias the buffer.
func (r *reader) bin() []byte {
	if !r.want(r.is(msgp.BinType), "bin") {
		return nil
	}
	v, rest, err := msgp.ReadBytesZC(r.b)
	if !r.done(rest, err) {
		return nil
	}
	return v[:len(v):len(v)]
}

func (r *reader) int(lo, hi int64) int64 {
	if !r.want(r.isInt(), "int") {
		return 0
	}
	v, rest, err := msgp.ReadInt64Bytes(r.b)
	if err == nil && (v < lo || v > hi) {
		err = fmt.Errorf("%d is not within %d and %d", v, lo, hi)
	}
	if !r.done(rest, err) {
		return 0
	}
	return v
}

func (r *reader) uint64() uint64 {
	if !r.want(r.isInt(), "int") {
		return 0
	}
	v, rest, err := msgp.ReadUint64Bytes(r.b)
	if !r.done(rest, err) {
		return 0
	}
	return v
}

func (r *reader) uint32() uint32 {
	if !r.want(r.isInt(), "int") {
		return 0
	}
	v, rest, err := msgp.ReadUint32Bytes(r.b)
	if !r.done(rest, err) {
		return 0
	}
	return v
}

// number reads an int or a float of either width.
func (r *reader) number() float64 {
	switch {
	case r.isInt():
		return float64(r.int(math.MinInt64, math.MaxInt64))
	case !r.want(r.is(msgp.Float64Type) || r.is(msgp.Float32Type), "float"):
		return 0
	}
	v, rest, err := msgp.ReadFloat64Bytes(r.b)
	if !r.done(rest, err) {
		return 0
	}
	return v
}

// skip passes over one value of any type.
func (r *reader) skip() { r.skipAt(0) }

func (r *reader) skipAt(depth int) {
	var n int
	switch {
	case r.err != nil:
		return
	case depth > maxDepth:
		r.fail(errDepth)
		return
	case r.is(msgp.ArrayType):
		n = r.array(math.MaxInt32)
	case r.is(msgp.MapType):
		n = 2 * r.object(math.MaxInt32)
	default:
		r.done(msgp.Skip(r.b))
		return
	}
	for ; n > 0 && r.err == nil; n-- {
		r.skipAt(depth + 1)
	}
}

// end fails if anything is left.
func (r *reader) end() {
	r.at = nil
	if r.err == nil && len(r.b) > 0 {
		r.fail(errTrailing)
	}
}

// appendInt encodes like Python's encoders: the shortest form, unsigned if it can be.
func appendInt(b []byte, v int64) []byte {
	if v >= 0 {
		return msgp.AppendUint64(b, uint64(v))
	}
	return msgp.AppendInt64(b, v)
}

func (r *reader) bool() bool {
	if !r.want(r.is(msgp.BoolType), "bool") {
		return false
	}
	v, rest, err := msgp.ReadBoolBytes(r.b)
	return r.done(rest, err) && v
}
