package eventfd

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadableWhileSet(t *testing.T) {
	f, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	check := func(when string, want bool) {
		t.Helper()
		if got := readable(t, f.Number()); got != want {
			t.Errorf("%s: readable = %v, want %v", when, got, want)
		}
	}
	check("new", false)
	f.Set()
	f.Set()
	check("set twice", true)
	check("still set", true)
	f.Clear()
	check("cleared once", false)
	f.Clear()
	check("cleared again", false)
}

func TestClosedOnExec(t *testing.T) {
	f, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags, err := unix.FcntlInt(uintptr(f.Number()), unix.F_GETFD, 0)
	if err != nil {
		t.Fatal(err)
	}
	if flags&unix.FD_CLOEXEC == 0 {
		t.Error("the descriptor would leak into children")
	}
}

func readable(t *testing.T, fd int) bool {
	t.Helper()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}
