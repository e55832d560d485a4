package connector

import (
	"slices"
	"time"

	"github.com/nixlpush/nixlpush/notify"
)

// sendHeartbeats tells each producer which requests D still wants, so that P keeps their
// blocks. A stock P compares with its own id of the request, which D only knows from a
// router that runs the legs one after the other; a nixlpush P also understands D's id and
// the transfer id, which work when both legs are sent at once.
func (l *loop) sendHeartbeats(now time.Time) {
	if now.Before(l.nextHeartbeat) || len(l.expects) == 0 {
		return
	}
	l.nextHeartbeat = now.Add(l.cfg.Heartbeat)
	ids := map[*peer][]string{}
	for _, ex := range l.expects {
		if ex.peer.state == peerNew { // its handshake has failed
			l.connect(ex.peer, func(*failure) {})
		}
		if ex.peer.state != peerReady || ex.ending != nil {
			continue
		}
		for _, id := range []string{ex.RemoteRequestID, ex.RequestID, ex.TransferID} {
			if id != "" {
				ids[ex.peer] = append(ids[ex.peer], id)
			}
		}
	}
	for p, names := range ids {
		for some := range slices.Chunk(names, heartbeatIDs) {
			if message := notify.Heartbeat(some); message != nil {
				l.sendHeartbeat(p, message)
			}
		}
	}
}

// heartbeatIDs bounds one message to some tens of kilobytes.
const heartbeatIDs = 512

func (l *loop) sendHeartbeat(p *peer, message []byte) {
	for _, r := range p.ranks {
		if err := l.send(p, r.agent, message); err != nil {
			l.log.Warn("heartbeat not sent", "to", p, "why", err)
			continue
		}
		l.stats.HeartbeatsSent++
	}
}

// heartbeat extends the leases of the offers that ids name.
func (l *loop) heartbeat(ids []string) {
	l.stats.HeartbeatsReceived++
	until := time.Now().Add(l.cfg.Lease * 2 / 3) // as stock does
	for _, id := range ids {
		named := l.offersByName[id]
		if len(named) == 0 {
			named = l.offersByName[notify.BaseID(id)]
		}
		for _, o := range named {
			l.renew(o, until)
		}
	}
}

func (l *loop) renew(o *offer, until time.Time) {
	if o.deadline.Before(until) {
		o.deadline = until
		l.stats.LeasesRenewed++
	}
}
