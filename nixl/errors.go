package nixl

import (
	"errors"
	"fmt"

	"github.com/nixlpush/nixlpush/nixl/internal/capi"
)

// check turns a status of NIXL into an error that names the call and wraps one of
// the sentinels. OK and InProgress are no errors.
func check(call string, status capi.Status) error {
	switch status {
	case capi.OK, capi.InProgress:
		return nil
	}
	return fmt.Errorf("nixl: %s: %w", call, cause(status))
}

func cause(status capi.Status) error {
	switch status {
	case capi.InvalidParam, capi.InvalidState:
		return ErrInvalid
	case capi.NoTelemetry:
		return fmt.Errorf("%w: telemetry is switched off (NIXL_TELEMETRY_ENABLE)", ErrInvalid)
	case capi.LocalUnregistered:
		return fmt.Errorf("%w: a local range is not registered", ErrInvalid)
	case capi.RemoteUnregistered:
		return fmt.Errorf("%w: a remote range is not in the peer's registered memory", ErrInvalid)
	case capi.NotFound:
		return ErrNotFound
	case capi.BackendFailed:
		return ErrBackend
	case capi.NoMemory:
		return errors.New("out of memory")
	}
	return fmt.Errorf("%w (status %d)", ErrBackend, status)
}
