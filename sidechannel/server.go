package sidechannel

import (
	"bytes"
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	maxSessions = 256                    // connections at a time; the oldest makes room
	acceptPause = 100 * time.Millisecond // after the system refused to accept one
	maxListed   = 16                     // ranks named in an error text
)

// Server answers handshakes for all ranks of one engine. Its methods may be called from
// any goroutine.
type Server struct {
	log      *slog.Logger
	quota    quota
	listener net.Listener
	start    time.Time
	closing  chan struct{}
	running  sync.WaitGroup

	mu       sync.Mutex
	ranks    map[rank][]byte
	sessions list.List // of *session, oldest first
}

type rank struct{ pp, tp int }

func (r rank) String() string { return fmt.Sprintf("(pp %d, tp %d)", r.pp, r.tp) }

// Listen binds host and port and starts to answer. Port 0 takes any free one. host is a
// name, an IPv4 or IPv6 address of this machine, or "*". A nil log discards.
func Listen(host string, port int, log *slog.Logger) (*Server, error) {
	if host == "" {
		return nil, errors.New("side channel: no host to listen on: name one, or \"*\" for all addresses of this machine")
	}
	l, err := listen(host, port)
	if err != nil {
		return nil, fmt.Errorf("side channel: %w%s", err, advice(err))
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		log:      log,
		listener: l,
		start:    time.Now(),
		closing:  make(chan struct{}),
		ranks:    make(map[rank][]byte),
	}
	s.run(s.acceptAll)
	return s, nil
}

func advice(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return ": another process has this port; stop it or give this engine another side channel port" +
			" (vLLM: VLLM_NIXL_SIDE_CHANNEL_PORT)"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return ": the side channel host must be an address of this machine (vLLM: VLLM_NIXL_SIDE_CHANNEL_HOST)"
	case errors.Is(err, syscall.EACCES):
		return ": choose a side channel port from 1024 up"
	}
	return ""
}

// Port is the port that was bound.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// Publish sets or replaces what is answered for a rank. The payload is copied.
func (s *Server) Publish(pp, tp int, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ranks[rank{pp, tp}] = bytes.Clone(payload)
}

// Close stops listening, drops all connections and returns when every goroutine of the
// server has ended. Further calls do nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	select {
	case <-s.closing:
	default:
		close(s.closing)
		s.listener.Close()
		for e := s.sessions.Front(); e != nil; e = e.Next() {
			e.Value.(*session).wire.conn.Close()
		}
	}
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// run starts a goroutine of the server. A panic in it ends neither the process nor the
// listener.
func (s *Server) run(f func()) {
	s.running.Go(func() {
		defer s.contain()
		f()
	})
}

func (s *Server) contain() {
	if r := recover(); r != nil {
		s.log.Error("side channel: internal error", "panic", r, "stack", string(debug.Stack()))
	}
}

func (s *Server) acceptAll() {
	for s.acceptOne() {
	}
}

// acceptOne returns false when the server is closed.
func (s *Server) acceptOne() (more bool) {
	more = true
	defer s.contain()
	conn, err := s.listener.Accept()
	if err == nil {
		s.admit(conn)
		return true
	}
	if errors.Is(err, net.ErrClosed) {
		return false
	}
	// Most likely the process has run out of file descriptors: give one back.
	s.warn("side channel: cannot accept", "error", err)
	s.dropOldest(1)
	select {
	case <-s.closing:
		return false
	case <-time.After(acceptPause):
		return true
	}
}

func (s *Server) admit(conn net.Conn) {
	c := &session{server: s, wire: newWire(conn), peer: conn.RemoteAddr().String()}
	s.dropOldest(maxSessions)
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closing:
		conn.Close()
		return
	default:
	}
	place := s.sessions.PushBack(c)
	s.run(func() {
		defer s.leave(place)
		c.serve()
	})
}

// dropOldest closes the oldest connection if there are as many as room. A peer needs
// its connection for milliseconds, so the oldest is the least likely to be in use.
func (s *Server) dropOldest(room int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions.Len() < room {
		return
	}
	c := s.sessions.Remove(s.sessions.Front()).(*session)
	c.wire.conn.Close()
}

func (s *Server) leave(place *list.Element) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions.Remove(place) // does nothing if it was dropped
	place.Value.(*session).wire.conn.Close()
}

// payload returns what is published for a rank; otherwise it says what is.
func (s *Server) payload(r rank) (payload []byte, refusal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if payload, ok := s.ranks[r]; ok {
		return payload, ""
	}
	return nil, fmt.Sprintf("no rank %s here; have %s", r, s.listRanks())
}

func (s *Server) listRanks() string {
	if len(s.ranks) == 0 {
		return "none yet"
	}
	var all []rank
	for r := range s.ranks {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b rank) int { return cmp.Or(cmp.Compare(a.pp, b.pp), cmp.Compare(a.tp, b.tp)) })
	var text []string
	for _, r := range all[:min(len(all), maxListed)] {
		text = append(text, fmt.Sprintf("(%d,%d)", r.pp, r.tp))
	}
	if more := len(all) - maxListed; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(text, ", ")
}

// warn logs what a peer has caused, within the quota.
func (s *Server) warn(msg string, args ...any) {
	ok, dropped := s.quota.take(time.Now())
	if !ok {
		return
	}
	if dropped > 0 {
		args = append(args, "lines_left_out", dropped)
	}
	s.log.Warn(msg, args...)
}
