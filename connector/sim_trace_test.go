package connector

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// simTrace is what has happened in a run, in order. It is written down only for a run that fails.
type simTrace struct {
	start time.Time
	lines []simLine
}

type simLine struct {
	at     time.Time
	who    string
	format string
	args   []any
	record *slog.Record // of an engine's log, else nil
}

func (l *simLine) String() string {
	if l.record == nil {
		return fmt.Sprintf(l.format, l.args...)
	}
	var b strings.Builder
	b.WriteString(l.record.Message)
	l.record.Attrs(func(a slog.Attr) bool {
		if a.Key != "request" || a.Value.String() != "" {
			fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		}
		return true
	})
	return b.String()
}

func (t *simTrace) String() string {
	var b strings.Builder
	for i := range t.lines {
		l := &t.lines[i]
		fmt.Fprintf(&b, "%10.3f ms  %-8s %s\n", float64(l.at.Sub(t.start).Microseconds())/1000, l.who, l.String())
	}
	return b.String()
}

// note adds a line. The caller holds the simulation's lock.
func (s *sim) note(who, format string, args ...any) {
	s.trace.lines = append(s.trace.lines, simLine{at: time.Now(), who: who, format: format, args: args})
}

// tell is note for those who do not hold the lock.
func (s *sim) tell(who, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(who, format, args...)
}

// simLog puts the log of an engine into the trace.
type simLog struct {
	s    *sim
	who  string
	seen *simCoverage
}

func (l simLog) Enabled(context.Context, slog.Level) bool { return true }
func (l simLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l simLog) WithGroup(string) slog.Handler            { return l }

func (l simLog) Handle(_ context.Context, r slog.Record) error {
	if event := simHandshakes[r.Message]; event != "" {
		r.Attrs(func(a slog.Attr) bool {
			if p, ok := a.Value.Any().(*peer); ok {
				l.seen.met(p, event)
			}
			return true
		})
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	r = r.Clone()
	l.s.trace.lines = append(l.s.trace.lines, simLine{at: time.Now(), who: l.who, record: &r})
	return nil
}

// simHandshakes are the lines of the log that tell how a handshake has ended.
var simHandshakes = map[string]string{"handshake done": "handshake", "handshake failed": "no handshake"}

// printable is a message of the wire for people.
func printable(payload []byte) string {
	const limit = 60
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, string(payload[:min(len(payload), limit)]))
	if len(payload) > limit {
		text += "..."
	}
	return text
}
