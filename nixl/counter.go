package nixl

import (
	"fmt"
	"sync"
)

// counter counts by name. The zero value is ready for use, by any thread.
type counter struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *counter) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[name]++
}

func (c *counter) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[name]--; c.counts[name] == 0 {
		delete(c.counts, name)
	}
}

// ifNone runs f, and lets none be added meanwhile, if there is none of that name.
func (c *counter) ifNone(name string, f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.counts[name]; n > 0 {
		return fmt.Errorf("nixl: unload %s: %w: %d transfers to it", name, ErrActive, n)
	}
	return f()
}
