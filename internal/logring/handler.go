package logring

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
)

// Handler gives a slog.Handler whose records become lines "message key=value ...". A
// message of several lines becomes as many lines of the ring, and an attribute "stack"
// follows as lines of its own. The time is left out: the embedder's logging stamps the line.
func (r *Ring) Handler() slog.Handler { return &handler{ring: r} }

type handler struct {
	ring  *Ring
	attrs string // of WithAttrs, formatted
	group string // of WithGroup: "a.b." in front of later keys
}

func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.ring.level.Level()
}

func (h *handler) Handle(_ context.Context, record slog.Record) error {
	var text strings.Builder
	var stack string
	text.WriteString(record.Message)
	text.WriteString(h.attrs)
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "stack" { // is readable as lines only
			stack = "\n" + a.Value.String()
			return true
		}
		writeAttr(&text, h.group, a)
		return true
	})
	h.ring.Add(record.Level, text.String()+stack)
	return nil
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var text strings.Builder
	text.WriteString(h.attrs)
	for _, a := range attrs {
		writeAttr(&text, h.group, a)
	}
	return &handler{ring: h.ring, attrs: text.String(), group: h.group}
}

func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &handler{ring: h.ring, attrs: h.attrs, group: h.group + name + "."}
}

// writeAttr adds " key=value", or that of each member of a group.
func writeAttr(text *strings.Builder, group string, a slog.Attr) {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, member := range value.Group() {
			writeAttr(text, group, member)
		}
		return
	}
	if a.Equal(slog.Attr{}) {
		return
	}
	text.WriteByte(' ')
	text.WriteString(group)
	text.WriteString(a.Key)
	text.WriteByte('=')
	text.WriteString(quote(value.String()))
}

// quote puts a value in quotes if it could not be told from what is around it.
func quote(value string) string {
	if value == "" || strings.ContainsAny(value, " =\"\t\r\n") {
		return strconv.Quote(value)
	}
	return value
}
