# SPDX-License-Identifier: Apache-2.0
"""A handle of the library as a Python object: open once, close once, never across a fork."""

from __future__ import annotations

import atexit
import warnings
import weakref
from types import TracebackType
from typing import Self

from nixlpush.errors import ClosedError
from nixlpush.library import Library

_open: weakref.WeakSet[Handle] = weakref.WeakSet()


class Handle:
    """Base of `Engine` and `SideChannel`. A context manager that closes."""

    _close_function = ""

    def __init__(self, library: Library, value: int) -> None:
        self._library = library
        self._value = value
        _open.add(self)

    @property
    def closed(self) -> bool:
        return self._value == 0

    def close(self) -> None:
        """Closes the handle; a second time does nothing. May block for seconds, see the
        header. Raises ForkError in a forked child."""
        self._library.check_process()
        value, self._value = self._value, 0
        if value:
            self._library.call(self._close_function, value)

    def _call(self, name: str, *args: object) -> int:
        return self._library.call(name, self._live(), *args)

    def _live(self) -> int:
        """The handle's number. Raises ForkError and ClosedError."""
        if self._library.forked:
            self._library.check_process()
        if not self._value:
            raise ClosedError(f"this {type(self).__name__} is closed")
        return self._value

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # A forked child inherits the object but must not enter Go, and a failed __init__
        # leaves one without a handle.
        if getattr(self, "_value", 0) and not self._library.forked:
            warnings.warn(f"unclosed {type(self).__name__}", ResourceWarning, stacklevel=2)
            self.close()


def _close_all() -> None:
    # NIXL's threads must not run on while the interpreter takes its modules apart.
    for handle in list(_open):
        if not handle._library.forked:
            handle.close()


atexit.register(_close_all)
