package notify

import "testing"

func TestCounter(t *testing.T) {
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
		{"one writer", 1, 1, 1, []arrival{{"a", 1, Done}, {"a", 1, Unknown}}},
		{"larger D", 4, 1, 1, []arrival{{"a", 2, Done}}},
		{"larger P", 2, 1, 1, []arrival{{"a", 4, Pending}, {"a", 4, Duplicate}, {"b", 4, Done}, {"b", 4, Unknown}}},
		{"pipeline", 1, 3, 1, []arrival{{"a", 1, Pending}, {"b", 1, Pending}, {"b", 1, Duplicate}, {"c", 1, Done}}},
		{"both", 1, 2, 1, []arrival{{"a", 2, Pending}, {"b", 2, Pending}, {"c", 2, Pending}, {"d", 2, Done}}},
		{"liar among the writers", 1, 1, 1, []arrival{{"a", 2, Pending}, {"b", 1, Done}}},
		{"late liar", 1, 2, 1, []arrival{{"a", 1, Pending}, {"b", 2, Pending}, {"c", 1, Pending}, {"d", 1, Done}}},
		{"liars only", 2, 1, 8, []arrival{{"a", 2, Pending}, {"b", 2, Pending}, {"c", 0, Pending}, {"d", 2, Done}}},
		{"router's size too small", 1, 2, 1, []arrival{{"a", 2, Pending}, {"b", 2, Pending}, {"c", 2, Pending}, {"d", 2, Done}}},
		{"no size", 1, 0, 1, []arrival{{"a", 0, Done}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := NewCounter(tt.tp)
			c.Expect("r", tt.pp, tt.said)
			for i, a := range tt.steps {
				if got := c.Arrive("r", a.sender, a.tp); got != a.want {
					t.Fatalf("arrival %d of %q: %d, want %d", i, a.sender, got, a.want)
				}
			}
			if c.Len() != 0 {
				t.Errorf("%d requests left", c.Len())
			}
		})
	}
}

func TestCounterRestarts(t *testing.T) {
	c := NewCounter(1)
	c.Expect("r", 2, 1)
	c.Arrive("r", "a", 1)
	c.Expect("r", 2, 1)
	if got := c.Arrive("r", "a", 1); got != Pending {
		t.Errorf("after a second Expect the first arrival is %d, want Pending", got)
	}
	c.Forget("r")
	if got := c.Arrive("r", "b", 1); got != Unknown || c.Len() != 0 {
		t.Errorf("after Forget: %d, %d requests left", got, c.Len())
	}
}
