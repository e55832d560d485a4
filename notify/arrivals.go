package notify

// Outcome says what the arrival of a completion meant.
type Outcome uint8

const (
	Pending   Outcome = iota // more producer ranks have to write
	Duplicate                // this sender had been counted
	Complete                 // that was the last one
)

// Arrivals counts the completions of one request that D waits for: one from each producer
// rank that writes into this rank, which are pp_size x max(1, P's tensor parallel size /
// D's). It is not safe for concurrent use.
type Arrivals struct {
	tpSize  int // D's
	ppSize  int // P's
	writers int // per pipeline stage; the most that the router or any completion has said
	senders map[string]struct{}
}

// NewArrivals starts counting for a request on an engine of tensor parallel size tpSize, whose
// producer has ppSize pipeline stages and, as far as D knows, tensor parallel size producerTP.
func NewArrivals(tpSize, ppSize, producerTP int) *Arrivals {
	tpSize = max(tpSize, 1)
	return &Arrivals{tpSize: tpSize, ppSize: max(ppSize, 1), writers: max(1, producerTP/tpSize), senders: map[string]struct{}{}}
}

// Arrive counts the completion that sender, a NIXL agent, has sent. producerTP is the size
// that stands in it.
func (a *Arrivals) Arrive(sender string, producerTP int) Outcome {
	if _, seen := a.senders[sender]; seen {
		return Duplicate
	}
	a.senders[sender] = struct{}{}
	a.writers = max(a.writers, producerTP/a.tpSize)
	if len(a.senders) >= a.ppSize*a.writers {
		return Complete
	}
	return Pending
}
