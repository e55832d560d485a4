package connector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nixlpush/nixlpush/nixl"
	"github.com/nixlpush/nixlpush/nixl/nixltest"
)

// TestUnequalTensorParallel has every pair of sizes with heads dealt out, replicated on one or
// both sides, and MLA. D's first block is cached.
func TestUnequalTensorParallel(t *testing.T) {
	for _, m := range []testModel{{layers: 2, heads: 8}, {layers: 2, heads: 2}, {layers: 2, heads: 1}, {layers: 2, latent: true}} {
		for _, from := range []int{1, 2, 4} {
			for _, to := range []int{1, 2, 4} {
				t.Run(fmt.Sprintf("%+v %d to %d", m, from, to), func(t *testing.T) {
					inFleet(t, m, side{tp: from}, side{tp: to}, nixltest.Faults{}, func(f *fleet) {
						r := f.request(70, 1)
						if from > to {
							f.offerAll(r)
							time.Sleep(time.Second)
						}
						for _, d := range f.d { // the ranks of D are not in step
							f.expect(d, r)
							time.Sleep(30 * time.Millisecond)
						}
						if from <= to {
							f.offerAll(r)
						}
						if sent, want := f.arrives(r), f.wantedBytes(r); sent.Bytes != want {
							t.Errorf("%d bytes were sent, want %d", sent.Bytes, want)
						}
						f.empty()
					})
				})
			}
		}
	}
}

func TestStages(t *testing.T) {
	for _, c := range []struct {
		m        testModel
		from, to side
	}{
		{testModel{layers: 5, heads: 2}, side{stages: []int{2, 3}}, side{}},
		{testModel{layers: 5, heads: 4}, side{stages: []int{1, 4}, tp: 2}, side{}},
		{testModel{layers: 5, heads: 4}, side{stages: []int{4, 1}}, side{tp: 2}},
		{testModel{layers: 3, latent: true}, side{stages: []int{1, 2}, tp: 2}, side{}},
		{testModel{layers: 5, heads: 2, groups: 2}, side{stages: []int{1, 4}}, side{}}, // a stage without the second group
		{testModel{layers: 4, heads: 2, draft: true}, side{stages: []int{2, 2}}, side{}},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			inFleet(t, c.m, c.from, c.to, nixltest.Faults{}, func(f *fleet) {
				for range 2 {
					r := f.request(40)
					f.expectAll(r)
					f.offerAll(r)
					if sent, want := f.arrives(r), f.wantedBytes(r); sent.Bytes != want {
						t.Errorf("%d bytes were sent, want %d", sent.Bytes, want)
					}
					f.wipe()
				}
				f.empty()
			})
		})
	}
}

// TestUnequalLayouts has block sizes, layouts and prefix hits in combination.
func TestUnequalLayouts(t *testing.T) {
	m := testModel{layers: 2, heads: 4}
	for _, c := range []struct {
		from, to side
		tokens   int
		cached   int
	}{
		{side{tokens: 16}, side{tokens: 32}, 70, 0},
		{side{tokens: 16}, side{tokens: 32}, 70, 1},
		{side{tokens: 32}, side{tokens: 16}, 70, 0},
		{side{tokens: 32}, side{tokens: 16}, 70, 3},
		{side{tokens: 16, tp: 2}, side{tokens: 32, tp: 4}, 95, 1},
		{side{tokens: 24}, side{tokens: 16}, 90, 1},
		{side{}, side{layout: "LBNHC"}, 33, 1},
		{side{layout: "LBNHC", tp: 2}, side{}, 33, 0},
		{side{layout: "LBNHC", tokens: 32}, side{layout: "LBNHC", tp: 2}, 50, 2},
		{side{layout: "LBNHC", tokens: 16, stages: []int{1, 1}}, side{tokens: 48, tp: 4}, 100, 1},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			inFleet(t, m, c.from, c.to, nixltest.Faults{}, func(f *fleet) {
				r := f.request(c.tokens, c.cached)
				f.offerAll(r)
				f.expectAll(r)
				f.arrives(r)
				f.empty()
			})
		})
	}
}

// TestHybrid has full attention and a sliding window; D may have all of a group.
func TestHybrid(t *testing.T) {
	m := testModel{layers: 4, heads: 2, groups: 2, window: 40}
	for _, cached := range [][]int{nil, {2}, {0, 7}, {7}, {7, 7}} {
		for _, to := range []side{{}, {tp: 2}, {tokens: 32}} {
			t.Run(fmt.Sprintf("%v %+v", cached, to), func(t *testing.T) {
				inFleet(t, m, side{}, to, nixltest.Faults{}, func(f *fleet) {
					r := f.request(100, cached...)
					f.expectAll(r)
					f.offerAll(r)
					f.arrives(r)
					f.empty()
				})
			})
		}
	}
}

// TestRanksOverNIXL has both engines in this process, over the installed NIXL.
func TestRanksOverNIXL(t *testing.T) {
	for _, c := range []struct{ from, to side }{
		{side{}, side{tp: 2, tokens: 32}},
		{side{tp: 2, layout: "LBNHC"}, side{}},
		{side{stages: []int{1, 2}}, side{}},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			f := newFleet(t, testModel{layers: 3, heads: 4}, c.from, c.to, nil, func(string) (nixl.Transport, waker) {
				tr := realTransport(t)
				w, err := newFDWaker(tr)
				if err != nil {
					t.Fatal(err)
				}
				return tr, w
			})
			for _, offerFirst := range []bool{true, false} {
				f.wipe()
				r := f.request(70, 1)
				if offerFirst {
					f.offerAll(r)
					time.Sleep(50 * time.Millisecond)
				}
				f.expectAll(r)
				if !offerFirst {
					time.Sleep(50 * time.Millisecond)
					f.offerAll(r)
				}
				f.arrives(r)
			}
			f.empty()
		})
	}
}

// TestDrafterOnEveryStage: its layer would be written more than once.
func TestDrafterOnEveryStage(t *testing.T) {
	inFleet(t, testModel{layers: 4, heads: 2, draft: true}, side{stages: []int{2, 2}, drafts: true}, side{}, nixltest.Faults{}, func(f *fleet) {
		if message := f.refusedByD(); !strings.Contains(message, "head 0 of layer 4 has more than one writer") {
			t.Errorf("message %q", message)
		}
	})
}

// TestDrafterOfAnotherNumber: a release may number a drafter's layer by the layers of its stage.
func TestDrafterOfAnotherNumber(t *testing.T) {
	to := side{change: func(l *Layout) {
		for i := range l.Regions[4].Parts {
			l.Regions[4].Parts[i].Layers.First = 9
		}
	}}
	inFleet(t, testModel{layers: 4, heads: 2, draft: true}, side{stages: []int{2, 2}}, to, nixltest.Faults{}, func(f *fleet) {
		f.p[0], f.p[1] = f.p[1], f.p[0] // the last stage is asked
		for who, message := range map[string]string{"D": f.refusedByD(), "P": f.refusedByP()} {
			if !strings.Contains(message, "head 0 of layer 9 has no writer") {
				t.Errorf("%s says %q", who, message)
			}
		}
	})
}
