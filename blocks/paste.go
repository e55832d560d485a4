package blocks

import "slices"

// Paste is copies that belong in one place: moved by Src and Dst bytes. All layers usually
// share them, so that a plan is small however many copies it has.
type Paste struct {
	Copies   []Copy
	Src, Dst uint64
}

// at is a copy of the paste, moved to where it belongs.
func (p *Paste) at(i int) Copy {
	c := &p.Copies[i]
	return Copy{c.Src + p.Src, c.Dst + p.Dst, c.Len}
}

// Append appends the copies of the plan to a list.
func (p *Plan) Append(copies []Copy) []Copy {
	copies = slices.Grow(copies, p.Copies)
	for i := range p.Pastes {
		for k := range p.Pastes[i].Copies {
			copies = append(copies, p.Pastes[i].at(k))
		}
	}
	return copies
}

// paste puts what is laid out into its places. Only where two places meet can something be
// joined or out of order. If anything is, all copies are written down as one list.
func (p *Planner) paste(places []place) (pastes []Paste, copies int, bytes uint64) {
	p.pastes, p.whole.copies, p.whole.mixed = p.pastes[:0], p.whole.copies[:0], false
	meet := false
	var last Copy
	for _, at := range places {
		laid := &p.laid[at.shape]
		n := len(laid.copies)
		if n == 0 {
			continue
		}
		paste := Paste{laid.copies, at.src, at.dst}
		meet = meet || len(p.pastes) > 0 && last.meets(paste.at(0))
		p.whole.mixed = p.whole.mixed || laid.mixed
		p.pastes, last = append(p.pastes, paste), paste.at(n-1)
		copies, bytes = copies+n, bytes+laid.bytes
	}
	if !meet && !p.whole.mixed {
		return p.pastes, copies, bytes
	}
	for i := range p.pastes {
		p.whole.paste(p.pastes[i].Copies, p.pastes[i].Src, p.pastes[i].Dst)
	}
	p.whole.tidy()
	p.pastes = append(p.pastes[:0], Paste{Copies: p.whole.copies})
	return p.pastes, len(p.whole.copies), p.whole.bytes()
}
