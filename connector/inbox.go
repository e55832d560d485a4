package connector

import "sync"

// inbox carries functions to the loop, which runs them in order of arrival.
type inbox struct {
	mu   sync.Mutex
	work []func(*loop)
}

func (b *inbox) add(f func(*loop)) {
	b.mu.Lock()
	b.work = append(b.work, f)
	b.mu.Unlock()
}

// take returns what has been added and continues in spare's memory.
func (b *inbox) take(spare []func(*loop)) []func(*loop) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.work) == 0 {
		return nil
	}
	work := b.work
	b.work = spare[:0]
	return work
}

func (b *inbox) pending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.work) > 0
}
