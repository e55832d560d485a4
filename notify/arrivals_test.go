package notify

import "testing"

func TestArrivals(t *testing.T) {
	type arrival struct {
		sender string
		tp     int
		want   Outcome
	}
	for _, tt := range []struct {
		name   string
		tp, pp int // of D, of P
		said   int // P's size as the router says it
		steps  []arrival
	}{
		{"one writer", 1, 1, 1, []arrival{{"a", 1, Complete}, {"a", 1, Duplicate}}},
		{"larger D", 4, 1, 1, []arrival{{"a", 2, Complete}}},
		{"larger P", 2, 1, 1, []arrival{{"a", 4, Pending}, {"a", 4, Duplicate}, {"b", 4, Complete}, {"b", 4, Duplicate}}},
		{"pipeline", 1, 3, 1, []arrival{{"a", 1, Pending}, {"b", 1, Pending}, {"b", 1, Duplicate}, {"c", 1, Complete}}},
		{"both", 1, 2, 1, []arrival{{"a", 2, Pending}, {"b", 2, Pending}, {"c", 2, Pending}, {"d", 2, Complete}}},
		{"liar among the writers", 1, 1, 1, []arrival{{"a", 2, Pending}, {"b", 1, Complete}}},
		{"late liar", 1, 2, 1, []arrival{{"a", 1, Pending}, {"b", 2, Pending}, {"c", 1, Pending}, {"d", 1, Complete}}},
		{"liars only", 2, 1, 8, []arrival{{"a", 2, Pending}, {"b", 2, Pending}, {"c", 0, Pending}, {"d", 2, Complete}}},
		{"router's size too small", 1, 2, 1, []arrival{{"a", 2, Pending}, {"b", 2, Pending}, {"c", 2, Pending}, {"d", 2, Complete}}},
		{"no size", 1, 0, 1, []arrival{{"a", 0, Complete}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := NewArrivals(tt.tp, tt.pp, tt.said)
			for i, a := range tt.steps {
				if got := c.Arrive(a.sender, a.tp); got != a.want {
					t.Fatalf("arrival %d of %q: %d, want %d", i, a.sender, got, a.want)
				}
			}
		})
	}
}
