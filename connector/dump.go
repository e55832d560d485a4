package connector

import (
	"encoding/json"
	"fmt"
	"time"
)

// dumpWait bounds how long Dump waits for the loop.
const dumpWait = time.Second

// Dump describes all that the engine holds as JSON, for people who look for what hangs. It
// waits for the loop, but no longer than a second.
func (e *Engine) Dump() ([]byte, error) {
	e.mu.Lock()
	phase, ended := e.phase, e.ended
	e.mu.Unlock()
	if phase != running {
		return nil, fmt.Errorf("%w: the cache is not registered, or the engine is closed", ErrState)
	}
	tables := make(chan dumped, 1)
	e.post(func(l *loop) { tables <- l.dump(time.Now()) })
	select {
	case d := <-tables:
		return json.Marshal(d)
	case <-ended:
		return nil, fmt.Errorf("%w: the engine has ended", ErrState)
	case <-time.After(dumpWait):
		return nil, fmt.Errorf("%w: the engine's loop does not answer within %v", ErrState, dumpWait)
	}
}

// dumped is the form of a dump. Times are milliseconds.
type dumped struct {
	EngineID string        `json:"engine_id"`
	Rank     string        `json:"rank"`
	Expects  []dumpedEntry `json:"expects"`
	Offers   []dumpedEntry `json:"offers"`
	Demands  []dumpedEntry `json:"demands"` // of consumers, that no offer serves
	Declined int           `json:"declined"`
	Past     int           `json:"past_registrations"`
	Peers    []dumpedPeer  `json:"peers"`
}

type dumpedEntry struct {
	Tag     uint64 `json:"tag,omitempty"`
	Request string `json:"request"`
	Peer    string `json:"peer,omitempty"`
	State   string `json:"state"`
	AgeMS   int64  `json:"age_ms,omitempty"`
	LeftMS  int64  `json:"left_ms,omitempty"` // until its time is over
}

type dumpedPeer struct {
	Peer    string   `json:"peer"`
	Agents  []string `json:"agents"`
	State   string   `json:"state"`
	Users   int      `json:"users"`
	Broken  bool     `json:"broken,omitempty"`
	Retired bool     `json:"retired,omitempty"`
}

func (l *loop) dump(now time.Time) dumped {
	d := dumped{EngineID: l.cfg.EngineID, Rank: address{l.cfg.PPRank, l.cfg.TPRank}.String(),
		Declined: len(l.declined.present), Past: len(l.past.keys)}
	for _, ex := range l.expects {
		d.Expects = append(d.Expects, dumpedEntry{ex.Tag, ex.RequestID, ex.peer.String(), ex.state(), now.Sub(ex.since).Milliseconds(), left(ex.fence, now)})
	}
	for _, o := range l.offers {
		entry := dumpedEntry{o.Tag, o.RequestID, "", o.state(), now.Sub(o.since).Milliseconds(), left(o.deadline, now)}
		if o.demand != nil && o.demand.peer != nil {
			entry.Peer = o.demand.peer.String()
		}
		d.Offers = append(d.Offers, entry)
	}
	for _, x := range l.demands {
		if x.offer == nil {
			d.Demands = append(d.Demands, dumpedEntry{Request: x.requestID, Peer: x.engineID, State: fmt.Sprintf("%d of %d ranks have registered", len(x.regs), x.ranks)})
		}
	}
	for _, p := range l.peers {
		d.Peers = append(d.Peers, p.dump(false))
	}
	for _, p := range l.retired {
		d.Peers = append(d.Peers, p.dump(true))
	}
	return d
}

func left(until, now time.Time) int64 {
	if until.IsZero() {
		return 0
	}
	return until.Sub(now).Milliseconds()
}

// state is what docs/protocol.md calls it.
func (ex *expectation) state() string {
	switch {
	case ex.deadline.IsZero():
		return "announced"
	case ex.ending != nil:
		return "ending: " + ex.ending.Error()
	case !ex.told():
		return "connecting"
	case ex.incoming:
		return "registered, being written"
	}
	return "registered"
}

func (o *offer) state() string {
	switch {
	case o.failed != nil:
		return fmt.Sprintf("failing, %d WRITEs under way: %v", o.active, o.failed)
	case o.demand == nil:
		return "waiting"
	case len(o.writes) == 0:
		return "matched"
	}
	return fmt.Sprintf("writing, %d WRITEs under way", o.active)
}

func (p *peer) dump(retired bool) dumpedPeer {
	d := dumpedPeer{Peer: p.String(), State: p.state.String(), Users: p.users, Broken: p.broken, Retired: retired}
	for _, r := range p.ranks {
		d.Agents = append(d.Agents, r.agent)
	}
	return d
}

func (s peerState) String() string { return [...]string{"new", "connecting", "ready"}[s] }
