package nixltest

import (
	"encoding/binary"
	"errors"

	"github.com/nixlpush/nixlpush/nixl"
)

// A metadata blob: the magic, the incarnation, the length of the name and the name,
// then four words for each range. Integers are little-endian, 64 bits.
const magic = "nixltst1"

const rangeSize = 4 * 8

var errMetadata = errors.New("not the metadata of an agent of nixltest")

// peer is what an agent knows of another.
type peer struct {
	name        string
	incarnation uint64
	ranges      []memory
}

// memory is a registered range.
type memory struct {
	mem  nixl.Mem
	desc nixl.Desc
}

func (m memory) covers(mem nixl.Mem, d nixl.Desc) bool {
	return m.mem == mem && m.desc.Dev == d.Dev && d.Addr >= m.desc.Addr &&
		d.Len <= m.desc.Len && d.Addr-m.desc.Addr <= m.desc.Len-d.Len
}

func covered(ranges []memory, mem nixl.Mem, d nixl.Desc) bool {
	for _, r := range ranges {
		if r.covers(mem, d) {
			return true
		}
	}
	return false
}

func encodeMetadata(p peer) []byte {
	b := []byte(magic)
	b = binary.LittleEndian.AppendUint64(b, p.incarnation)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(p.name)))
	b = append(b, p.name...)
	for _, r := range p.ranges {
		for _, word := range []uint64{uint64(r.mem), r.desc.Addr, r.desc.Len, r.desc.Dev} {
			b = binary.LittleEndian.AppendUint64(b, word)
		}
	}
	return b
}

func decodeMetadata(b []byte) (*peer, error) {
	const fixed = len(magic) + 16
	if len(b) < fixed || string(b[:len(magic)]) != magic {
		return nil, errMetadata
	}
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	p := &peer{incarnation: word(len(magic))}
	nameLen := word(len(magic) + 8)
	rest := uint64(len(b) - fixed)
	if nameLen == 0 || nameLen > rest || (rest-nameLen)%rangeSize != 0 {
		return nil, errMetadata
	}
	p.name = string(b[fixed : fixed+int(nameLen)])
	for at := fixed + int(nameLen); at < len(b); at += rangeSize {
		p.ranges = append(p.ranges, memory{
			mem:  nixl.Mem(word(at)),
			desc: nixl.Desc{Addr: word(at + 8), Len: word(at + 16), Dev: word(at + 24)},
		})
	}
	return p, nil
}
