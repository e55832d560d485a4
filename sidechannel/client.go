package sidechannel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/nixlpush/nixlpush/notify"
)

const maxReplyParts = 3 // delimiter, payload, clock

// ErrRefused means that the peer has answered that it cannot serve the request, for
// example because it has no such rank. The error's text gives the peer's reason.
var ErrRefused = errors.New("refused by the peer")

// Client is a connection to the side channel of one engine. It may be used by one
// goroutine at a time. After an error it is of no further use but must be closed.
type Client struct {
	where string
	wire  *wire
}

// Fetch asks the engine at host:port for the payload of one rank. It blocks until the
// answer is there, something fails or ctx ends; there is no other deadline. rtt is the
// time from request to answer.
func Fetch(ctx context.Context, host string, port, pp, tp int) (payload []byte, rtt time.Duration, err error) {
	c, err := Dial(ctx, host, port)
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	return c.Fetch(ctx, pp, tp)
}

// Dial connects to the side channel at host:port, to ask for several ranks. It blocks
// like [Fetch]. Nobody listening there is an error at once.
func Dial(ctx context.Context, host string, port int) (*Client, error) {
	c := &Client{where: address(host, port)}
	conn, err := dial(ctx, host, port)
	if err != nil {
		return nil, c.explain(ctx, "connect", err)
	}
	c.wire = newWire(conn)
	defer c.bind(ctx)()
	if err := c.wire.greet("REQ", "ROUTER", "REP"); err != nil {
		conn.Close()
		return nil, c.explain(ctx, "greet", err)
	}
	return c, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.wire.conn.Close() }

// Fetch asks for the payload of one rank, like the function of that name.
func (c *Client) Fetch(ctx context.Context, pp, tp int) (payload []byte, rtt time.Duration, err error) {
	defer c.bind(ctx)()
	start := time.Now()
	payload, err = c.ask(pp, tp)
	if err != nil {
		return nil, 0, c.explain(ctx, "rank "+rank{pp, tp}.String(), err)
	}
	return payload, time.Since(start), nil
}

func (c *Client) ask(pp, tp int) ([]byte, error) {
	if err := c.wire.send(nil, notify.Request{PP: pp, TP: tp}.Encode()); err != nil {
		return nil, err
	}
	parts, err := c.wire.receive(maxReplyParts, notify.MaxMetadata)
	if err != nil {
		return nil, err
	}
	if len(parts) != maxReplyParts || len(parts[0]) != 0 {
		return nil, fmt.Errorf("answer of %d frames, want [\"\", payload, clock]", len(parts))
	}
	p, err := notify.DecodePayload(parts[1])
	if err == nil && p.Refusal != "" {
		return nil, fmt.Errorf("%w: %s", ErrRefused, p.Refusal)
	}
	return parts[1], err
}

// bind makes what waits on the connection end with ctx, until the returned function is
// called.
func (c *Client) bind(ctx context.Context) (release func()) {
	stop := context.AfterFunc(ctx, func() { c.wire.conn.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

// explain says where, at what and why an exchange has failed.
func (c *Client) explain(ctx context.Context, what string, err error) error {
	switch {
	case ctx.Err() != nil:
		err = c.explainEnd(ctx)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		err = fmt.Errorf("the peer has closed the connection: %w", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		err = fmt.Errorf("no engine listens there; check the side channel host and port: %w", syscall.ECONNREFUSED)
	}
	return fmt.Errorf("side channel %s: %s: %w", c.where, what, err)
}

// explainEnd reports the end of ctx.
func (c *Client) explainEnd(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(ctx.Err(), context.Canceled):
		return cause
	case c.wire == nil:
		return fmt.Errorf("timed out: %w", cause)
	default:
		return fmt.Errorf("no answer in time: %w (a stock vLLM engine answers nobody any more"+
			" once it was asked for a rank that it does not have)", cause)
	}
}
