package nixl

import "time"

// ThreadSync says how NIXL guards an agent that several threads use.
type ThreadSync int

const (
	// SyncRW lets posts and polls run at once; loading, registering and draining
	// notifications take their turn.
	SyncRW ThreadSync = iota
	// SyncStrict lets one call in at a time.
	SyncStrict
)

// Config is what [Open] makes an agent from.
type Config struct {
	// Name is the agent's name as peers know it; it must be unique among all agents
	// that meet. Empty: a random one.
	Name string
	// Library is the path of libnixl_capi.so. Empty: it is looked for, first in the
	// wheels under WheelRoot, then as the dynamic loader does.
	Library string
	// WheelRoot is a Python site-packages folder with an installed NIXL wheel. May be empty.
	WheelRoot string
	// Backends are created in this order, which is also NIXL's order of preference.
	// Empty: UCX with NIXL's default parameters.
	Backends []Backend
	// ThreadSync is SyncRW unless set.
	ThreadSync ThreadSync
	// ProgressThread starts NIXL's own progress thread. Without it, polling Status and
	// Notifications drives all progress, of incoming transfers too, and an agent that
	// is not polled costs nothing.
	ProgressThread bool
	// ProgressDelay makes the progress thread sleep until its backend has something to
	// do, and look by itself this often (whole milliseconds). 0: the thread polls
	// without pause and takes a whole core.
	ProgressDelay time.Duration
}

// Backend is a NIXL plug-in by name, such as UCX or LIBFABRIC, and its parameters.
type Backend struct {
	Name   string
	Params map[string]string
}
