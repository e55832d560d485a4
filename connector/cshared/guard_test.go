package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nixlpush/nixlpush/connector"
	"github.com/nixlpush/nixlpush/nixl"
)

func TestCodes(t *testing.T) {
	const (
		einval, ehandle, estate, enixl, enetwork, eshort, einternal = -1, -2, -3, -4, -5, -6, -7
	)
	for _, c := range []struct {
		name string
		err  error
		want int
	}{
		{"argument", fmt.Errorf("expect 3: %w", errArgument), einval},
		{"engine's argument", fmt.Errorf("%w: tag 3", connector.ErrInvalid), einval},
		{"handle", fmt.Errorf("%w: 3", errHandle), ehandle},
		{"state", connector.ErrState, estate},
		{"state where NIXL is called", withCode(enixl, connector.ErrState), estate},
		{"NIXL", withCode(enixl, fmt.Errorf("register: %w", nixl.ErrBackend)), enixl},
		{"network, in the midst of others", errors.Join(errors.New("a"), withCode(enetwork, errors.New("b"))), enetwork},
		{"short", errShort, eshort},
		{"defect", connector.ErrInternal, einternal},
		{"anything else", errors.New("too many open files"), einternal},
	} {
		if got := int(codeOf(c.err)); got != c.want {
			t.Errorf("%s: code %d, want %d", c.name, got, c.want)
		}
	}
	if withCode(enixl, nil) != nil {
		t.Error("no error became one")
	}
}
