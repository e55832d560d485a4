package notify

// Bounds on what a peer may send. Real messages stay far below them.
const (
	MaxMessage  = 32 << 20 // bytes of one notification
	MaxMetadata = 64 << 20 // bytes of a handshake payload
	MaxRequest  = 1 << 10  // bytes of a handshake request
	MaxID       = 4 << 10  // bytes of a request id, an engine id, a host or a name
	MaxBlocks   = 4 << 20  // block ids of one registration
	MaxGroups   = 1 << 10  // transfer groups of one registration
	MaxBeats    = 1 << 20  // ids in one heartbeat
	MaxRegions  = 1 << 18  // entries of one list in the agent metadata
	MaxParts    = 1 << 14  // regions of a description, and parts in all of them

	maxPort     = 1<<16 - 1
	maxParallel = 1 << 16 // ranks of one kind
	maxFactors  = 1 << 10 // entries of the extension's lists
	maxFactor   = 1 << 16 // bytes of one value there
	maxDepth    = 64      // nesting inside values that are skipped
)
