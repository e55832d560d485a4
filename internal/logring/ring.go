// Package logring keeps the latest log lines of the library until the embedder fetches
// them. The library writes to no file and no descriptor of its host: stderr may be a
// closed pipe, and then a write ends the process.
package logring

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/nixlpush/nixlpush/internal/eventfd"
)

// MaxLine is the longest text of a line in bytes; longer ones are cut.
const MaxLine = 4096

// ErrShort says that the next line does not fit the buffer.
var ErrShort = errors.New("the buffer is shorter than the next log line")

// Ring is a bounded queue of log lines. All methods may be called from any thread at
// any time; none blocks.
type Ring struct {
	level slog.LevelVar
	ready *eventfd.FD

	mu      sync.Mutex
	lines   []string // circular: count lines from first on, each as Drain hands it out
	first   int
	count   int
	dropped int // since the last line about it
}

// New makes a ring for so many lines. It needs one file descriptor.
func New(lines int) (*Ring, error) {
	ready, err := eventfd.New()
	if err != nil {
		return nil, fmt.Errorf("make the log ring: %w", err)
	}
	return &Ring{ready: ready, lines: make([]string, lines)}, nil
}

// FD is a descriptor that is readable while lines wait.
func (r *Ring) FD() int { return r.ready.Number() }

// SetLevel makes the ring keep lines of this level and above; at first Info.
func (r *Ring) SetLevel(level slog.Level) { r.level.Set(level) }

// Close frees the descriptor. Nothing may be called after it.
func (r *Ring) Close() error { return r.ready.Close() }

// Add queues a text whatever the level set. Each line of the text becomes one line here.
func (r *Ring) Add(level slog.Level, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(text) {
		r.push(format(level, strings.TrimSuffix(line, "\n")))
	}
}

// push adds one line, in place of the oldest if the ring is full.
func (r *Ring) push(line string) {
	if r.count == len(r.lines) {
		r.lines[r.first] = line
		r.first = (r.first + 1) % len(r.lines)
		r.dropped++
		return
	}
	r.lines[(r.first+r.count)%len(r.lines)] = line
	r.count++
	if r.count == 1 {
		r.ready.Set()
	}
}

// Drain moves whole lines, oldest first, into buf: "<level>\t<text>\n" with Python's
// level numbers. It returns how many bytes it wrote, and ErrShort if a line waits
// and buf holds not even that one.
func (r *Ring) Drain(buf []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	if r.dropped > 0 {
		line := format(slog.LevelWarn, fmt.Sprintf("%d log lines were dropped: they were not fetched in time", r.dropped))
		if len(line) > len(buf) {
			return 0, ErrShort
		}
		n = copy(buf, line)
		r.dropped = 0
	}
	for r.count > 0 {
		line := r.lines[r.first]
		if len(line) > len(buf)-n {
			if n == 0 {
				return 0, ErrShort
			}
			return n, nil
		}
		n += copy(buf[n:], line)
		r.lines[r.first] = ""
		r.first = (r.first + 1) % len(r.lines)
		r.count--
	}
	r.ready.Clear()
	return n, nil
}

// format makes a line of one level and one text without line breaks.
func format(level slog.Level, text string) string {
	return fmt.Sprintf("%d\t%s\n", PythonLevel(level), cut(text))
}

// cut shortens a text to MaxLine bytes, between two characters. Bytes that are not UTF-8,
// which a peer may have sent, become question marks.
func cut(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= MaxLine {
		return text
	}
	return strings.ToValidUTF8(text[:MaxLine], "")
}

// PythonLevel is a level as Python's logging numbers it: debug 10, info 20, warning 30,
// error 40, and what lies between.
func PythonLevel(level slog.Level) int { return 20 + int(level)*10/4 }

// FromPython is the inverse of PythonLevel.
func FromPython(level int) slog.Level { return slog.Level((level - 20) * 4 / 10) }
