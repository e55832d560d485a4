# SPDX-License-Identifier: Apache-2.0
"""Errors of nixlpush. All derive from `NixlPushError`."""

from __future__ import annotations

from nixlpush import _abi


class NixlPushError(Exception):
    """Base of all errors of this package."""


class LibraryNotFoundError(NixlPushError):
    """libnixlpush cannot be found or loaded; the text lists what was tried."""


class AbiMismatchError(NixlPushError):
    """The library that was found speaks another version of the interface."""


class ForkError(NixlPushError):
    """The library was loaded before a fork and is used in the child.

    The Go runtime has no threads in a forked child, so a call would hang for ever.
    """


class ClosedError(NixlPushError):
    """The handle has been closed."""


class CallError(NixlPushError):
    """A function of the library failed. `code` is the library's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class InvalidArgumentError(CallError):
    """An argument is wrong; nothing was done."""


class UnknownHandleError(CallError):
    """The library knows no such handle."""


class StateError(CallError):
    """The call does not fit the state, e.g. a step before the cache is registered."""


class NixlError(CallError):
    """NIXL cannot be loaded, or it failed."""


class NetworkError(CallError):
    """The network refused, e.g. the port of the side channel is in use."""


class InternalError(CallError):
    """A defect of nixlpush. The library refuses work from now on."""


_BY_CODE: dict[int, type[CallError]] = {
    _abi.EINVAL: InvalidArgumentError,
    _abi.EHANDLE: UnknownHandleError,
    _abi.ESTATE: StateError,
    _abi.ENIXL: NixlError,
    _abi.ENETWORK: NetworkError,
    _abi.EINTERNAL: InternalError,
}


def from_code(code: int, message: str) -> CallError:
    """The error for a negative return value of the library."""
    return _BY_CODE.get(code, CallError)(code, message or f"error {code} without a text")
