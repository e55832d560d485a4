package notify

// Outcome says what the arrival of a completion meant.
type Outcome uint8

const (
	Unknown   Outcome = iota // nothing is expected under this id, or no longer
	Pending                  // more producer ranks have to write
	Duplicate                // this sender had been counted
	Done                     // that was the last one; the request is forgotten
)

// Counter counts the completions of requests that D waits for: one from each producer
// rank that writes into this rank, which are pp_size x max(1, P's tensor parallel size /
// D's). It is not safe for concurrent use.
type Counter struct {
	tpSize   int
	requests map[string]*arrivals
}

type arrivals struct {
	ppSize  int
	writers int // per pipeline stage; the most that the router or any completion has said
	senders map[string]struct{}
}

// NewCounter makes a Counter for an engine of the given tensor parallel size.
func NewCounter(tpSize int) *Counter {
	return &Counter{tpSize: max(tpSize, 1), requests: make(map[string]*arrivals)}
}

// Expect starts counting for a request whose producer has ppSize pipeline stages and, as far
// as D knows, tensor parallel size producerTP. If the request is being counted it starts
// again from zero.
func (c *Counter) Expect(requestID string, ppSize, producerTP int) {
	c.requests[requestID] = &arrivals{ppSize: max(ppSize, 1), writers: max(1, producerTP/c.tpSize)}
}

// Arrive counts the completion that sender, a NIXL agent, has sent for a request.
// producerTP is the size that stands in it.
func (c *Counter) Arrive(requestID, sender string, producerTP int) Outcome {
	a := c.requests[requestID]
	if a == nil {
		return Unknown
	}
	if _, seen := a.senders[sender]; seen {
		return Duplicate
	}
	a.writers = max(a.writers, producerTP/c.tpSize)
	if len(a.senders)+1 >= a.ppSize*a.writers {
		delete(c.requests, requestID)
		return Done
	}
	if a.senders == nil {
		a.senders = make(map[string]struct{})
	}
	a.senders[sender] = struct{}{}
	return Pending
}

// Forget stops counting for a request.
func (c *Counter) Forget(requestID string) { delete(c.requests, requestID) }

// Len is the number of requests being counted.
func (c *Counter) Len() int { return len(c.requests) }
