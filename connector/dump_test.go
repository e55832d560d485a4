package connector

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/nixl/nixltest"
)

func TestDump(t *testing.T) {
	inWorld(t, transfers(nixltest.Outcome{Delay: 5 * time.Second}), nil, func(w *world) {
		w.offer(1, "waits", 1)
		w.offer(2, "writes", 3)
		w.expect(3, "writes", 4)
		w.expect(4, "lonely", 5)
		time.Sleep(time.Second)
		w.cancel(w.d, 3)
		read := func(e *testEngine) (d dumped) {
			time.Sleep(soon)
			text, err := e.Dump()
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &d); err != nil {
				t.Fatal(err)
			}
			return d
		}
		states := func(entries []dumpedEntry) map[uint64]string {
			m := map[uint64]string{}
			for _, x := range entries {
				m[x.Tag] = x.State
			}
			return m
		}
		p, d := read(w.p), read(w.d)
		if s := states(p.Offers); len(s) != 2 || s[1] != "waiting" || s[2] != "writing, 1 WRITEs under way" {
			t.Errorf("offers %+v", p.Offers)
		}
		if len(p.Demands) != 1 || p.Demands[0].Request != "cmpl-lonely-0-0123abcd" {
			t.Errorf("demands %+v", p.Demands)
		}
		if s := states(d.Expects); len(s) != 2 || s[3] != "ending: cancelled" || s[4] != "registered" {
			t.Errorf("expects %+v", d.Expects)
		}
		if len(d.Peers) != 1 || d.Peers[0].State != "ready" || len(d.Peers[0].Agents) != 1 {
			t.Errorf("peers %+v", d.Peers)
		}
		for _, x := range append(p.Offers, d.Expects...) {
			if x.AgeMS < 1000 || x.LeftMS < 1000 || x.LeftMS > 10000 {
				t.Errorf("%+v", x)
			}
		}
		w.d.Close()
		if _, err := w.d.Dump(); !errors.Is(err, ErrState) {
			t.Errorf("after close: %v", err)
		}
	})
}
