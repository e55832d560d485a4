package nixltest_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
)

// duo is two agents of which a knows b, with a block of memory each.
type duo struct {
	*testing.T
	fabric      *nixltest.Fabric
	a, b        nixl.Transport
	from, to    []byte
	local, peer nixl.Desc
}

func newDuo(t *testing.T, faults nixltest.Faults) *duo {
	d := &duo{T: t, fabric: nixltest.NewFabric(faults)}
	d.a, d.b = agent(t, d.fabric, "a"), agent(t, d.fabric, "b")
	d.from, d.local = nixltest.Buffer(64)
	d.to, d.peer = nixltest.Buffer(64)
	copy(d.from, bytes.Repeat([]byte{7}, 64))
	_, err := d.a.Register(nixl.DRAM, []nixl.Desc{d.local})
	require.NoError(t, err)
	_, err = d.b.Register(nixl.DRAM, []nixl.Desc{d.peer})
	require.NoError(t, err)
	d.load()
	return d
}

func (d *duo) load() {
	metadata, err := d.b.Metadata()
	require.NoError(d, err)
	_, err = d.a.Load(metadata)
	require.NoError(d, err)
}

func (d *duo) write(notif string) nixl.Request {
	r, err := d.a.Create(nixl.Write, nixl.DRAM, []nixl.Desc{d.local}, nixl.DRAM, []nixl.Desc{d.peer}, "b", []byte(notif))
	require.NoError(d, err)
	return r
}

// arrived is what b has been notified of.
func (d *duo) arrived() string {
	notifications, err := d.b.Notifications()
	require.NoError(d, err)
	var all []string
	for _, n := range notifications {
		require.Equal(d, "a", n.Agent)
		all = append(all, string(n.Payload))
	}
	return strings.Join(all, " ")
}

// delays gives each message the fate that is listed for its payload.
func delays(fates map[string][]time.Duration) nixltest.Faults {
	return nixltest.Faults{Message: func(m nixltest.Message) []time.Duration { return fates[string(m.Payload)] }}
}

func TestMessageFates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := time.Millisecond
		d := newDuo(t, delays(map[string][]time.Duration{
			"late": {10 * ms}, "lost": nil, "twice": {0, 20 * ms}, "prompt": {0},
		}))
		for _, payload := range []string{"late", "lost", "twice", "prompt"} {
			require.NoError(t, d.a.Notify("b", []byte(payload)))
		}
		require.Equal(t, "twice prompt", d.arrived())
		time.Sleep(10*ms - 1)
		require.Equal(t, "", d.arrived())
		time.Sleep(1)
		require.Equal(t, "late", d.arrived())
		time.Sleep(10 * ms)
		require.Equal(t, "twice", d.arrived())
		time.Sleep(time.Hour)
		require.Equal(t, "", d.arrived())
	})
}

// outcome gives every transfer the same one.
func outcome(o nixltest.Outcome) nixltest.Faults {
	return nixltest.Faults{Transfer: func(nixltest.Transfer) nixltest.Outcome { return o }}
}

func TestTransferLandsAndNotifiesWhenPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, outcome(nixltest.Outcome{Delay: time.Second}))
		r := d.write("done")
		status, err := r.Post()
		require.NoError(t, err)
		require.Equal(t, nixl.InProgress, status)
		require.ErrorIs(t, r.Release(), nixl.ErrActive)
		require.ErrorIs(t, d.a.Unload("b"), nixl.ErrActive)

		time.Sleep(2 * time.Second) // nobody polls
		require.Equal(t, "", d.arrived())
		require.NotEqual(t, d.from, d.to)

		status, err = r.Status()
		require.NoError(t, err)
		require.Equal(t, nixl.Done, status)
		require.Equal(t, d.from, d.to)
		require.Equal(t, "done", d.arrived())
		telemetry, err := r.Telemetry()
		require.NoError(t, err)
		require.Equal(t, nixl.Telemetry{Transfer: 2 * time.Second, Bytes: 64, Descriptors: 1}, telemetry)
		require.NoError(t, r.Release())
	})
}

// TestLandWithoutPoll has the bytes move at their time, seen just before, and the end of the
// transfer wait for a poll.
func TestLandWithoutPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d *duo
		var seen []nixltest.Transfer
		d = newDuo(t, nixltest.Faults{
			Transfer: func(nixltest.Transfer) nixltest.Outcome { return nixltest.Outcome{Delay: time.Second} },
			Landing: func(tr nixltest.Transfer) {
				require.NotEqual(t, d.from, d.to)
				seen = append(seen, tr)
			},
		})
		r := d.write("done")
		_, err := r.Post()
		require.NoError(t, err)
		d.fabric.Land("a")
		require.NotEqual(t, d.from, d.to, "it is not due")
		time.Sleep(time.Second)
		d.fabric.Land("nobody")
		d.fabric.Land("a")
		d.fabric.Land("a")
		require.Equal(t, d.from, d.to)
		require.Equal(t, "", d.arrived())
		d.to[0]++
		status, err := r.Status()
		require.NoError(t, err)
		require.Equal(t, nixl.Done, status)
		require.NotEqual(t, d.from, d.to, "it landed twice")
		require.Equal(t, "done", d.arrived())
		require.Len(t, seen, 1)
		require.Equal(t, []nixl.Desc{d.local}, seen[0].Local)
		require.Equal(t, []nixl.Desc{d.peer}, seen[0].Remote)
		require.NoError(t, r.Release())
	})
}

func TestTransferFaults(t *testing.T) {
	broken := errors.New("broken")
	t.Run("post", func(t *testing.T) {
		d := newDuo(t, outcome(nixltest.Outcome{PostErr: broken}))
		r := d.write("done")
		_, err := r.Post()
		require.ErrorIs(t, err, broken)
		_, err = r.Status()
		require.ErrorIs(t, err, broken)
		d.nothingHappened(r)
	})
	t.Run("status", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := newDuo(t, outcome(nixltest.Outcome{Delay: time.Second, Err: broken}))
			r := d.write("done")
			_, err := r.Post()
			require.NoError(t, err)
			time.Sleep(time.Second)
			_, err = r.Status()
			require.ErrorIs(t, err, broken)
			d.nothingHappened(r)
		})
	})
	t.Run("deregistered", func(t *testing.T) {
		d := newDuo(t, nixltest.Faults{})
		_, extra := nixltest.Buffer(64)
		registration, err := d.a.Register(nixl.DRAM, []nixl.Desc{extra})
		require.NoError(t, err)
		r, err := d.a.Create(nixl.Write, nixl.DRAM, []nixl.Desc{extra}, nixl.DRAM, []nixl.Desc{d.peer}, "b", nil)
		require.NoError(t, err)
		require.NoError(t, registration.Release())
		_, err = r.Post()
		require.ErrorIs(t, err, nixl.ErrBackend)
		d.nothingHappened(r)
	})
}

func (d *duo) nothingHappened(r nixl.Request) {
	require.Equal(d, make([]byte, 64), d.to)
	require.Equal(d, "", d.arrived())
	require.NoError(d, r.Release())
	require.NoError(d, d.a.Unload("b"))
}

func TestNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, outcome(nixltest.Outcome{Never: true}))
		r := d.write("done")
		_, err := r.Post()
		require.NoError(t, err)
		time.Sleep(1000 * time.Hour)
		status, err := r.Status()
		require.NoError(t, err)
		require.Equal(t, nixl.InProgress, status)
		require.ErrorIs(t, d.a.Close(), nixl.ErrActive)
		d.fabric.Kill("b") // the only way out
		_, err = r.Status()
		require.ErrorIs(t, err, nixl.ErrBackend)
		require.NoError(t, r.Release())
	})
}

func TestKill(t *testing.T) {
	d := newDuo(t, nixltest.Faults{})
	stale := d.write("stale")
	d.fabric.Kill("b")

	_, err := d.b.Notifications()
	require.ErrorIs(t, err, nixl.ErrClosed)
	require.ErrorIs(t, d.a.Notify("b", nil), nixl.ErrBackend)
	_, err = stale.Post()
	require.ErrorIs(t, err, nixl.ErrBackend)
	require.Equal(t, make([]byte, 64), d.to)

	// The next b is another one, until its metadata is loaded.
	d.b = agent(t, d.fabric, "b")
	_, err = d.b.Register(nixl.DRAM, []nixl.Desc{d.peer})
	require.NoError(t, err)
	require.ErrorIs(t, d.a.Notify("b", nil), nixl.ErrBackend)
	metadata, err := d.b.Metadata()
	require.NoError(t, err)
	_, err = d.a.Load(metadata)
	require.ErrorIs(t, err, nixl.ErrInvalid)
	require.NoError(t, d.a.Unload("b"))
	d.load()
	_, err = stale.Post()
	require.ErrorIs(t, err, nixl.ErrNotFound)
	require.NoError(t, stale.Release())
	fresh := d.write("fresh")
	_, err = fresh.Post()
	require.NoError(t, err)
	require.Equal(t, d.from, d.to)
	require.Equal(t, "fresh", d.arrived())
	require.NoError(t, fresh.Release())
}

func TestNamesAreUnique(t *testing.T) {
	fabric := nixltest.NewFabric(nixltest.Faults{})
	agent(t, fabric, "a")
	_, err := fabric.Agent("a")
	require.ErrorIs(t, err, nixl.ErrInvalid)
	_, err = fabric.Agent("")
	require.ErrorIs(t, err, nixl.ErrInvalid)
}

func TestTelemetryCountsMergedDescriptors(t *testing.T) {
	d := newDuo(t, nixltest.Faults{})
	quarters := func(whole nixl.Desc) (parts []nixl.Desc) {
		for i := range uint64(4) {
			parts = append(parts, nixl.Desc{Addr: whole.Addr + 16*i, Len: 16})
		}
		return parts
	}
	local, err := d.a.Prepare("", nixl.DRAM, quarters(d.local))
	require.NoError(t, err)
	remote, err := d.a.Prepare("b", nixl.DRAM, quarters(d.peer))
	require.NoError(t, err)
	r, err := d.a.Make(nixl.Write, local, []int32{0, 1, 3, 2}, remote, []int32{1, 2, 3, 0}, nil)
	require.NoError(t, err)
	_, err = r.Post()
	require.NoError(t, err)
	telemetry, err := r.Telemetry()
	require.NoError(t, err)
	require.EqualValues(t, 3, telemetry.Descriptors, "only 0-1 to 1-2 are neighbours on both sides")
	require.NoError(t, errors.Join(r.Release(), local.Release(), remote.Release()))
	require.ErrorIs(t, local.Release(), nixl.ErrInvalid)
}

// chaosRun is the story of 200 transfers and messages under one seed.
func chaosRun(t *testing.T, seed uint64) string {
	var story strings.Builder
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, nixltest.Chaos{
			Rand: rand.New(rand.NewPCG(seed, 1)),
			Drop: 0.2, Duplicate: 0.2, Lag: time.Second,
			FailPost: 0.1, Fail: 0.1, Slow: time.Second,
		}.Faults())
		for i := range 200 {
			r := d.write(fmt.Sprint(i))
			status, err := r.Post()
			time.Sleep(time.Second)
			if err == nil && status == nixl.InProgress {
				_, err = r.Status()
			}
			fmt.Fprintln(&story, i, err, d.arrived())
			require.NoError(t, r.Release())
		}
	})
	return story.String()
}

func TestChaosRepeats(t *testing.T) {
	story := chaosRun(t, 1)
	require.Equal(t, story, chaosRun(t, 1))
	require.NotEqual(t, story, chaosRun(t, 2))
	require.Contains(t, story, nixl.ErrBackend.Error())
}
