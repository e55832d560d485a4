package sidechannel

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/nixlpush/nixlpush/notify"
)

const (
	greetTime   = 5 * time.Second  // from accepting to the peer's READY
	requestTime = 60 * time.Second // from one reply to the whole next request
	replyTime   = 10 * time.Second // to take a reply

	maxRequestParts = 2 // delimiter and request, after libzmq's REQ
)

// session is one connection of a peer to the server.
type session struct {
	server *Server
	wire   *wire
	peer   string
}

// serve answers until the peer goes or misbehaves. The owner closes the connection.
func (c *session) serve() {
	c.wire.conn.SetDeadline(time.Now().Add(greetTime))
	err := c.wire.greet("ROUTER", "REQ", "DEALER")
	for err == nil {
		err = c.exchange()
	}
	if !gone(err) {
		c.server.warn("side channel: dropped a connection", "peer", c.peer, "error", err)
	}
}

// gone reports whether err is the ordinary end of a connection, which needs no log line:
// the peer has left, has been silent, or has been dropped by us.
func gone(err error) bool {
	for _, ordinary := range []error{io.EOF, net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET} {
		if errors.Is(err, ordinary) {
			return true
		}
	}
	return false
}

// exchange reads one request and answers it.
func (c *session) exchange() error {
	c.wire.conn.SetDeadline(time.Now().Add(requestTime))
	parts, err := c.wire.receive(maxRequestParts, notify.MaxRequest)
	if errors.Is(err, errTooLarge) {
		c.refuse(err.Error())
		return net.ErrClosed
	}
	if err != nil {
		return err
	}
	if len(parts) != maxRequestParts || len(parts[0]) != 0 {
		return c.refuse("request is not framed as [\"\", request]")
	}
	q, err := notify.DecodeRequest(parts[1])
	if err != nil {
		return c.refuse(err.Error())
	}
	if q.Strange {
		c.server.warn("side channel: request with a strange tag, answered all the same", "peer", c.peer)
	}
	payload, refusal := c.server.payload(rank{q.PP, q.TP})
	if refusal != "" {
		return c.refuse(refusal)
	}
	return c.reply(payload)
}

// refuse answers with a payload that holds no metadata but the reason.
func (c *session) refuse(reason string) error {
	c.server.warn("side channel: refused a request", "peer", c.peer, "reason", reason)
	return c.reply(notify.Payload{Refusal: reason}.Encode())
}

func (c *session) reply(payload []byte) error {
	c.wire.conn.SetDeadline(time.Now().Add(replyTime))
	return c.wire.send(nil, payload, notify.EncodeClock(time.Since(c.server.start).Seconds()))
}
