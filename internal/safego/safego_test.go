package safego

import (
	"strings"
	"testing"
)

func TestGoRunsAndReturns(t *testing.T) {
	ran := make(chan struct{})
	Go("worker", func(any, []byte) { t.Error("onPanic called without a panic") }, func() { close(ran) })
	<-ran
}

func TestGoHandsOverPanic(t *testing.T) {
	type report struct {
		value any
		stack string
	}
	got := make(chan report)
	Go("poller", func(v any, s []byte) { got <- report{v, string(s)} }, explode)
	r := <-got
	if r.value != "boom" {
		t.Errorf("value = %v, want boom", r.value)
	}
	for _, want := range []string{`goroutine "poller"`, "safego.explode"} {
		if !strings.Contains(r.stack, want) {
			t.Errorf("stack lacks %q:\n%s", want, r.stack)
		}
	}
}

func TestGoHandsOverRuntimeError(t *testing.T) {
	got := make(chan any)
	Go("indexer", func(v any, _ []byte) { got <- v }, func() {
		var list []int
		_ = list[len(list)]
	})
	if _, ok := (<-got).(error); !ok {
		t.Error("a runtime error must arrive as an error")
	}
}

func explode() { panic("boom") }
