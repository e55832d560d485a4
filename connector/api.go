package connector

import (
	"sync/atomic"
	"time"

	"github.com/nixlpush/nixlpush/blocks"
	"github.com/nixlpush/nixlpush/nixl"
)

// Config says who an engine is and how long it waits. One engine serves one worker,
// that is one (pipeline, tensor) parallel rank.
type Config struct {
	EngineID string // as peers know it; shared by all ranks of one vLLM engine
	TPRank   int
	TPSize   int
	PPRank   int
	PPSize   int
	// Host and Port of this engine's side channel, as peers shall dial it.
	Host string
	Port int

	// CompatHash must equal the peer's, unless EnforceCompat is false. Factors are what it
	// was made from, if known: they name the difference in the error text.
	CompatHash    string
	Factors       map[string]string
	EnforceCompat bool

	Lease            time.Duration // of an offer that names none; default 30 s
	ReceiveTimeout   time.Duration // from Expect with blocks to failure; default 480 s
	HandshakeTimeout time.Duration // for all frames of one peer rank; default 5 s
	Heartbeat        time.Duration // between two heartbeats to one P; default Lease/6
	PeerTTL          time.Duration // an unused peer is forgotten; default 1 h, negative: never
	Writers          int           // threads that post WRITEs; default 2

	// EventsWaiting, if not nil, is 1 while events wait and 0 else, until Close returns.
	EventsWaiting *atomic.Uint32
}

// Layout describes the KV cache of one worker: regions of equal blocks. Block ids of requests are logical; one logical block is
// PhysicalPerLogical consecutive blocks of a region.
type Layout struct {
	Name               string // of the cache layout, e.g. "LBHNC"
	AttentionBackend   string
	BlockSize          int // tokens per block of a region
	NumBlocks          int // blocks of a region
	PhysicalPerLogical int
	DeviceID           int
	SSMSizes           [2]int
	Regions            []Region
	// Memory is what to register with NIXL: it must cover every region.
	Memory []Memory
	// Stock is what peers are told that run vLLM's own connector. Every region begins in one
	// of them. Without it they are told the regions as they are.
	Stock []StockRegion
}

// Region is one strided array of blocks, usually one attention layer.
type Region struct {
	Name      string // of its first layer
	Base      uint64 // address of block 0
	BlockLen  uint64 // bytes of one block
	Stride    uint64 // bytes from one block to the next
	NumBlocks int
	Group     int // transfer group whose block ids index it; -1: shared by several
	Mem       nixl.Mem

	PerID  int // consecutive blocks that one block id stands for; 0: Layout.PhysicalPerLogical
	Tokens int // in a block; 0: Layout.BlockSize; OneState: a block holds one state
	Window int // tokens that its layers look back; 0: all
	// Parts say what is in a block. Without them it is one piece that cannot be divided, so
	// that a peer's must be laid out just like it.
	Parts []Part
}

// StockRegion is a region as vLLM's own connector would cut the same memory. Its peers pair
// such regions by order and name.
type StockRegion struct {
	Name      string
	Base      uint64
	BlockLen  uint64
	Stride    uint64
	NumBlocks int
	Group     int // -1: several groups' block ids lead here
	Mem       nixl.Mem
	Members   []Member // layers that lie in it, if vLLM's connector names them
}

// Member is a layer in a stock region. In a block with the pages of several layers, which
// vLLM's connector tells apart by name, its page has Len bytes, Offset from the beginning.
type Member struct {
	Name        string
	Offset, Len uint64
}

// Part and Axis are how package blocks describes what is in a block.
type (
	Part = blocks.Part
	Axis = blocks.Axis
)

// OneState as Region.Tokens: a block holds one state, as with Mamba.
const OneState = -1

// Memory is one range of memory to register.
type Memory struct {
	nixl.Desc
	Mem nixl.Mem
}

// Endpoint is where a peer engine is to be found.
type Endpoint struct {
	EngineID string
	Host     string
	Port     int
	TPSize   int
	PPSize   int
}

// BlockIDs holds logical block ids, one list per transfer group, in token order.
type BlockIDs [][]uint32

// Expect announces KV that a producer will push into this worker. Without Blocks it only
// keeps the producer's lease alive; a later Expect of the same Tag brings the blocks.
type Expect struct {
	Tag             uint64 // the embedder's name for it, returned in the event
	RequestID       string // this engine's id of the request, echoed by the producer
	TransferID      string // made by the router for both legs; may be empty
	RemoteRequestID string // the producer's id of the request if known; may be empty
	Producer        Endpoint
	Blocks          BlockIDs
}

// Offer hands over the finished blocks of a request. They must stay as they are until
// the event.
type Offer struct {
	Tag        uint64
	RequestID  string
	TransferID string
	Blocks     BlockIDs
	Tokens     uint64        // that the lists of blocks end with; 0: unknown. See blocks.Planner
	Lease      time.Duration // 0: Config.Lease
}

// Step is what changed since the last step of the scheduler.
type Step struct {
	Expects []Expect
	Offers  []Offer
	// Cancels ends expects and offers by Tag. An Expect without blocks ends at once and
	// without an event; everything else ends with one, when its blocks are safe.
	Cancels []uint64
}

// Kind is what became of an Expect or Offer.
type Kind uint32

const (
	Sent          Kind = 1 // offer: written; its blocks may be freed
	SendFailed    Kind = 2 // offer: not (wholly) written; its blocks may be freed
	Received      Kind = 3 // expect: every byte has landed
	ReceiveFailed Kind = 4 // expect: its blocks hold nothing of use and may be freed
)

// Reason says why something failed.
type Reason uint32

const (
	ReasonNone         Reason = 0
	ReasonDeadline     Reason = 1 // the producer did not write in time
	ReasonLeaseExpired Reason = 2 // no consumer registered in time
	ReasonUnreachable  Reason = 3 // the handshake with the peer failed
	ReasonIncompatible Reason = 4 // the peer's hash, identity or cache does not fit
	ReasonWriteFailed  Reason = 5 // NIXL refused or failed the WRITE
	ReasonCancelled    Reason = 6
	ReasonClosed       Reason = 7 // the engine was closed
	ReasonInternal     Reason = 8 // a defect of nixlpush; the engine refuses work from now on
)

// Event reports the end of one Expect or Offer, once.
type Event struct {
	Tag     uint64
	Kind    Kind
	Reason  Reason
	Message string // for a person; empty on success

	// Of the WRITEs of an Offer that was sent.
	Bytes       uint64
	Descriptors uint64        // after merging
	BlockPairs  uint64        // before merging: blocks times regions
	Post        time.Duration // in NIXL's post calls
	Write       time.Duration // from post to the end of the last WRITE
	// Match is from the later of offer and registration to the WRITE posted.
	Match time.Duration
}

// Stats are counters since Open and, first, what is held right now.
type Stats struct {
	Expects       uint64 // announced or waiting for KV
	Offers        uint64 // waiting for a registration, or being written
	Registrations uint64 // of consumers, not matched yet
	Writes        uint64 // posted and not ended
	Peers         uint64
	Events        uint64 // not fetched yet
	Goroutines    uint64 // of the process
	HeapBytes     uint64 // of the Go heap

	OfferFirst             uint64 // rendezvous in which the offer came first
	RegistrationFirst      uint64 // and in which the registration did
	Sent                   uint64
	SendFailed             uint64
	Received               uint64
	ReceiveFailed          uint64
	Bytes                  uint64
	Descriptors            uint64
	BlockPairs             uint64
	FailedTransfers        uint64
	FailedNotifications    uint64
	FailedHandshakes       uint64
	ExpiredOffers          uint64
	NotificationsAfterEnd  uint64 // completions for requests that had ended
	MalformedNotifications uint64
	HeartbeatsSent         uint64
	HeartbeatsReceived     uint64
	LeasesRenewed          uint64
}
