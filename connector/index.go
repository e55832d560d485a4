package connector

import (
	"slices"

	"github.com/nixlpush/nixlpush/notify"
)

// index finds the newest item under a key in constant time. Several items may share a key
// (a retried request does); each is added and removed under the same keys.
type index[T comparable] map[string][]T

func (x index[T]) add(key string, item T) { x[key] = append(x[key], item) }

func (x index[T]) remove(key string, item T) {
	items := slices.DeleteFunc(x[key], func(other T) bool { return other == item })
	if len(items) == 0 {
		delete(x, key)
		return
	}
	x[key] = items
}

// newest returns the item added last under key for which ok holds.
func (x index[T]) newest(key string, ok func(T) bool) (item T, found bool) {
	for _, item := range slices.Backward(x[key]) {
		if ok(item) {
			return item, true
		}
	}
	return item, false
}

// matchKeys are the names by which the two legs of one request find each other: the
// router's transfer id if it made one, and the request id without the suffix that every
// engine adds to its own.
type matchKeys struct {
	transfer string
	base     string
}

func keysOf(transferID, requestID string) matchKeys {
	return matchKeys{transferID, notify.BaseID(requestID)}
}

// agree reports whether two sets of keys may mean the same dispatch: a transfer id that
// both carry decides alone.
func (k matchKeys) agree(o matchKeys) bool {
	if k.transfer != "" && o.transfer != "" {
		return k.transfer == o.transfer
	}
	return k.base == o.base
}

// meetings is one side's waiting room: who is there, by transfer id and by base id.
type meetings[T comparable] struct {
	keys       func(T) matchKeys
	byTransfer index[T]
	byBase     index[T]
	present    map[T]struct{}
}

func newMeetings[T comparable](keys func(T) matchKeys) *meetings[T] {
	return &meetings[T]{keys, index[T]{}, index[T]{}, map[T]struct{}{}}
}

func (m *meetings[T]) add(item T) {
	k := m.keys(item)
	if k.transfer != "" {
		m.byTransfer.add(k.transfer, item)
	}
	m.byBase.add(k.base, item)
	m.present[item] = struct{}{}
}

// remove takes an item out, if it is there.
func (m *meetings[T]) remove(item T) {
	if _, ok := m.present[item]; !ok {
		return
	}
	delete(m.present, item)
	k := m.keys(item)
	if k.transfer != "" {
		m.byTransfer.remove(k.transfer, item)
	}
	m.byBase.remove(k.base, item)
}

// find returns the newest item that agrees with k.
func (m *meetings[T]) find(k matchKeys) (item T, found bool) {
	if k.transfer != "" {
		if item, found = m.byTransfer.newest(k.transfer, func(T) bool { return true }); found {
			return item, true
		}
	}
	return m.byBase.newest(k.base, func(item T) bool { return m.keys(item).agree(k) })
}
