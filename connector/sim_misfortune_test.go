package connector

import "time"

// misfortunes are what happens to whole engines, at moments that are drawn beforehand.
func (s *sim) misfortunes() {
	for range s.rates.kills {
		s.strike(func(e *simEngine) {
			if s.rates.calm && e.producer {
				return // what a consumer has sent to the former life fails
			}
			e.kill()
			s.rise(e)
		})
	}
	for range s.rates.closes {
		s.strike(func(e *simEngine) {
			e.close()
			s.rise(e)
		})
	}
	for range s.rates.hangs {
		s.strike(s.hang)
	}
	for range s.rates.cuts {
		s.strike(func(e *simEngine) {
			d := upTo(s.rng, 2*time.Second)
			s.tell(e.name, "is CUT OFF: what is sent to it is lost for %v", d)
			s.cut(e, time.Now(), time.Now().Add(d))
		})
	}
	for range s.rates.stops {
		s.strike(func(e *simEngine) {
			d := between(s.rng, 5*time.Millisecond, 300*time.Millisecond)
			if s.rng.IntN(3) == 0 {
				d = between(s.rng, 300*time.Millisecond, 2500*time.Millisecond)
			}
			e.stop(d)
		})
	}
	for range s.rates.deaf {
		s.strike(func(e *simEngine) {
			d := upTo(s.rng, 400*time.Millisecond)
			s.tell(e.name, "does not look at events for %v", d)
			s.tally.fault("events not polled")
			e.deaf = time.Now().Add(d)
			e.delay(d)
		})
	}
	for range s.rates.strangers {
		s.after(upTo(s.rng, s.traffic+simReceive), s.stranger)
	}
}

// strike does something to one of the engines that are up.
func (s *sim) strike(what func(*simEngine)) {
	s.after(upTo(s.rng, s.traffic+simReceive), func() {
		if e := s.engines[s.rng.IntN(len(s.engines))]; e.up() && !e.standing() {
			what(e)
		}
	})
}

// rise starts an engine again, some time after it has gone down.
func (s *sim) rise(e *simEngine) {
	s.after(upTo(s.rng, 100*time.Millisecond), func() {
		if e.state.Load() == simClosing {
			s.rise(e)
			return
		}
		e.clear()
		e.boot()
	})
}

// hang is a host that stands still for longer than any deadline: most of what is sent to it
// meanwhile is lost, too.
func (s *sim) hang(e *simEngine) {
	d := between(s.rng, simReceive+stopWait, simReceive+stopWait+time.Second)
	e.stop(d)
	if s.rng.IntN(3) > 0 {
		s.cut(e, time.Now().Add(upTo(s.rng, 200*time.Millisecond)), time.Now().Add(d))
	}
}

// simCut is a time in which nothing arrives.
type simCut struct{ from, to time.Time }

func (s *sim) cut(e *simEngine, from, to time.Time) {
	s.tally.fault("engine cut off")
	s.mu.Lock()
	defer s.mu.Unlock()
	e.cuts = append(e.cuts, simCut{from, to})
}

// reaches reports whether an engine gets what is sent to it now.
func (e *simEngine) reaches() bool {
	now := time.Now()
	for _, c := range e.cuts {
		if now.After(c.from) && now.Before(c.to) {
			return false
		}
	}
	return true
}
