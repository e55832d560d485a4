package sidechannel

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
)

// Frame flags of ZMTP 3.
const (
	flagMore    = 1 << 0
	flagLong    = 1 << 1
	flagCommand = 1 << 2
	flagsKnown  = flagMore | flagLong | flagCommand
)

const (
	greetingSize  = 64
	signatureSize = 10
	maxCommand    = 4 << 10   // bytes of a command frame
	chunk         = 256 << 10 // bytes allocated before any of a frame has arrived
)

var (
	errForeign  = errors.New("peer does not speak ZeroMQ (ZMTP 3)")
	errTooLarge = errors.New("message too large")
)

// wire is one end of a ZMTP 3.0 connection that uses the NULL mechanism. Deadlines are
// the owner's to set on conn.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
}

func newWire(conn net.Conn) *wire { return &wire{conn: conn, in: bufio.NewReader(conn)} }

// greet exchanges greetings and READY commands. own is the type of this socket; the
// peer's must be one of accepted.
func (w *wire) greet(own string, accepted ...string) error {
	if _, err := w.conn.Write(greeting(own)); err != nil {
		return err
	}
	if err := w.readGreeting(); err != nil {
		return err
	}
	if _, err := w.conn.Write(ready(own)); err != nil {
		return err
	}
	peer, err := w.readReady()
	if err != nil {
		return err
	}
	if !slices.Contains(accepted, peer) {
		return fmt.Errorf("peer is a socket of type %.16q, want one of %q", peer, accepted)
	}
	return nil
}

func greeting(own string) []byte {
	b := make([]byte, greetingSize)
	b[0], b[9] = 0xff, 0x7f
	b[10] = 3 // version 3.0
	copy(b[12:32], "NULL")
	return b
}

// readGreeting looks at the signature before it waits for the rest, so that a peer of
// another protocol is noticed at its first bytes.
func (w *wire) readGreeting() error {
	var b [greetingSize]byte
	if _, err := io.ReadFull(w.in, b[:1]); err != nil {
		return err
	}
	if b[0] != 0xff {
		return fmt.Errorf("%w: it begins with %q", errForeign, w.peek(b[0]))
	}
	if _, err := io.ReadFull(w.in, b[1:signatureSize]); err != nil {
		return err
	}
	if b[9]&1 == 0 {
		return errForeign
	}
	if _, err := io.ReadFull(w.in, b[signatureSize:]); err != nil {
		return err
	}
	if b[10] < 3 {
		return fmt.Errorf("%w: it speaks version %d", errForeign, b[10])
	}
	if mechanism := bytes.TrimRight(b[12:32], "\x00"); string(mechanism) != "NULL" {
		return fmt.Errorf("peer wants security mechanism %.20q, want NULL", mechanism)
	}
	return nil
}

// peek returns some of what has arrived already, for an error text.
func (w *wire) peek(first byte) []byte {
	rest, _ := w.in.Peek(min(w.in.Buffered(), 15))
	return append([]byte{first}, rest...)
}

func ready(own string) []byte {
	body := []byte("\x05READY")
	body = appendProperty(body, "Socket-Type", own)
	body = appendProperty(body, "Identity", "")
	return append([]byte{flagCommand, byte(len(body))}, body...)
}

func appendProperty(b []byte, name, value string) []byte {
	b = append(b, byte(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// readReady reads the peer's READY command and returns its socket type.
func (w *wire) readReady() (socketType string, err error) {
	flags, size, err := w.header()
	if err != nil {
		return "", err
	}
	if flags&flagCommand == 0 || size > maxCommand {
		return "", errors.New("peer does not begin with a READY command")
	}
	body, err := w.body(size)
	if err != nil {
		return "", err
	}
	if text, ok := bytes.CutPrefix(body, []byte("\x05ERROR")); ok {
		return "", fmt.Errorf("peer refuses the connection: %.100q", text[min(len(text), 1):])
	}
	properties, ok := bytes.CutPrefix(body, []byte("\x05READY"))
	if !ok {
		return "", errors.New("peer does not begin with a READY command")
	}
	return findProperty(properties, "Socket-Type")
}

func findProperty(b []byte, name string) (value string, err error) {
	for len(b) > 0 {
		n := int(b[0])
		if len(b) < 1+n+4 {
			break
		}
		key, rest := b[1:1+n], b[1+n:]
		size := uint64(binary.BigEndian.Uint32(rest))
		if size > uint64(len(rest)-4) {
			break
		}
		if bytes.EqualFold(key, []byte(name)) {
			return string(rest[4 : 4+size]), nil
		}
		b = rest[4+size:]
	}
	return "", fmt.Errorf("peer's READY command has no %s", name)
}

// receive reads one message of at most maxParts frames, each of at most maxSize bytes.
// If a peer exceeds that the error is errTooLarge and the connection cannot be read on.
func (w *wire) receive(maxParts int, maxSize uint64) (parts [][]byte, err error) {
	for {
		flags, size, err := w.header()
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			if err := w.passCommand(size); err != nil {
				return nil, err
			}
			continue
		}
		if size > maxSize {
			return nil, fmt.Errorf("%w: a frame of %d bytes, limit is %d", errTooLarge, size, maxSize)
		}
		if len(parts) == maxParts {
			return nil, fmt.Errorf("%w: more than %d frames", errTooLarge, maxParts)
		}
		body, err := w.body(size)
		if err != nil {
			return nil, err
		}
		parts = append(parts, body)
		if flags&flagMore == 0 {
			return parts, nil
		}
	}
}

// passCommand skips a command: ZMTP 3.0 has none that needs an answer after READY.
func (w *wire) passCommand(size uint64) error {
	if size > maxCommand {
		return fmt.Errorf("%w: a command of %d bytes, limit is %d", errTooLarge, size, maxCommand)
	}
	_, err := w.in.Discard(int(size))
	return err
}

// header reads flags and length of a frame. The end of the stream before its first byte
// is io.EOF, within it io.ErrUnexpectedEOF.
func (w *wire) header() (flags byte, size uint64, err error) {
	flags, err = w.in.ReadByte()
	if err != nil {
		return 0, 0, err
	}
	if flags&^flagsKnown != 0 {
		return 0, 0, fmt.Errorf("frame with unknown flags %#02x", flags)
	}
	var length [8]byte
	at := 7
	if flags&flagLong != 0 {
		at = 0
	}
	if _, err := io.ReadFull(w.in, length[at:]); err != nil {
		return 0, 0, noEOF(err)
	}
	return flags, binary.BigEndian.Uint64(length[:]), nil
}

// body reads size bytes. Memory grows with what arrives, not with what is claimed.
func (w *wire) body(size uint64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(min(size, chunk)))
	_, err := io.CopyN(&b, w.in, int64(size))
	return b.Bytes(), noEOF(err)
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// send writes one message.
func (w *wire) send(parts ...[]byte) error {
	buffers := make(net.Buffers, 0, 2*len(parts))
	for i, part := range parts {
		var flags byte
		if i < len(parts)-1 {
			flags = flagMore
		}
		buffers = append(buffers, frameHeader(flags, len(part)), part)
	}
	_, err := buffers.WriteTo(w.conn)
	return err
}

func frameHeader(flags byte, size int) []byte {
	if size <= 0xff {
		return []byte{flags, byte(size)}
	}
	return binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(size))
}
