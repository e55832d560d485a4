package notify

import (
	"slices"
	"testing"
)

func TestBaseID(t *testing.T) {
	for id, want := range map[string]string{
		"cmpl-x-0-0123abcd":                    "cmpl-x-0",
		"cmpl-x-0-0123ABCD":                    "cmpl-x-0",
		"a-00000000-11111111":                  "a-00000000",
		"a-0000000":                            "a-0000000",
		"a-000000000":                          "a-000000000",
		"a-0000000g":                           "a-0000000g",
		"a-0000000@":                           "a-0000000@",
		"a-0000000\x10":                        "a-0000000\x10",
		"a_00000000":                           "a_00000000",
		"-00000000":                            "",
		"00000000":                             "00000000",
		"":                                     "",
		"550e8400-e29b-41d4-a716-446655440000": "550e8400-e29b-41d4-a716-446655440000",
	} {
		if got := BaseID(id); got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { BaseID("cmpl-x-0-0123abcd") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLeaseNames(t *testing.T) {
	const x = "550e8400-e29b-41d4-a716-446655440000"
	for _, tt := range []struct{ endpoint, id, heartbeat string }{
		{"completions", "cmpl-" + x + "-0-0123abcd", x},
		{"completions, 12th prompt", "cmpl-" + x + "-11-0123abcd", x},
		{"completions, n > 1", "3_cmpl-" + x + "-0-0123abcd", x},
		{"chat", "chatcmpl-" + x + "-0123abcd", x},
		{"chat in a batch", "chatcmpl-" + x + "_7-0123abcd", x},
		{"tokens", "generate-tokens-" + x + "-0123abcd", x},
		{"responses", "resp_" + x + "_0-0123abcd", "resp_" + x},
		{"no random suffix", "cmpl-" + x + "-0", x},
		{"router id that looks suffixed", "cmpl-job-deadbeef-0-0123abcd", "job-deadbeef"},
		{"chat id that looks suffixed", "chatcmpl-job-deadbeef-0123abcd", "job-deadbeef"},
		{"P's own id", "cmpl-" + x + "-0-0123abcd", "cmpl-" + x + "-0-0123abcd"},
		{"base of D's id", "cmpl-" + x + "-0-0123abcd", BaseID("cmpl-" + x + "-0-76543210")},
		{"offline", "5-0123abcd", "5"},
	} {
		names := LeaseNames(nil, tt.id)
		if !slices.Contains(names, tt.heartbeat) {
			t.Errorf("%s: %q is not among %q", tt.endpoint, tt.heartbeat, names)
		}
		if names[0] != tt.id || slices.Contains(names, "") {
			t.Errorf("%s: names %q", tt.endpoint, names)
		}
		if len(names) > 4 {
			t.Errorf("%s: %d names", tt.endpoint, len(names))
		}
	}
	var room [4]string
	if n := testing.AllocsPerRun(100, func() { LeaseNames(room[:0], "3_cmpl-x_1-0-0123abcd") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Requests of different X-Request-Ids share no name.
func TestLeaseNamesApart(t *testing.T) {
	owner := map[string]string{}
	for _, x := range []string{"a", "b", "a-0", "cmpl-a", "a-b", "1", "0_a"} {
		for _, id := range []string{"cmpl-" + x + "-0-0123abcd", "chatcmpl-" + x + "-0123abcd"} {
			for _, name := range LeaseNames(nil, id) {
				if other, taken := owner[name]; taken && other != x {
					t.Errorf("%q names requests of both %q and %q", name, other, x)
				}
				owner[name] = x
			}
		}
	}
}

func FuzzLeaseNames(f *testing.F) {
	for _, id := range []string{"3_cmpl-x_1-0-0123abcd", "chatcmpl-x-0123abcd", "_", "-", "cmpl-", "resp_1_0-00000000"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		names := LeaseNames(nil, id)
		if len(names) > 4 || names[0] != id || slices.Contains(names[1:], "") && BaseID(id) != "" {
			t.Fatalf("%q: %q", id, names)
		}
	})
}
