# SPDX-License-Identifier: Apache-2.0
"""Finding and loading libnixlpush, once per process, and never across a fork."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

from nixlpush import _abi, logs
from nixlpush.errors import (
    AbiMismatchError,
    CallError,
    ForkError,
    LibraryNotFoundError,
    from_code,
)

NAME = "libnixlpush.so.1"


class Library:
    """The loaded library and the process it belongs to.

    A process that only imports this package holds none. Every use passes `check_process`
    before it enters Go.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pid = os.getpid()
        self.forked = False  # whether this is a child of the process that loaded it
        os.register_at_fork(after_in_child=self._mark_forked)
        self.dll = _load(path)
        # The same functions, entered with the GIL held: for those that neither block nor
        # call back. With another thread busy in Python, giving the GIL away costs a switch
        # interval (5 ms) to get it back.
        self.quick = ctypes.PyDLL(str(path), handle=self.dll._handle)
        _abi.declare(self.quick)

    def _mark_forked(self) -> None:
        self.forked = True

    def check_process(self) -> None:
        """Raises ForkError in a child of the process that loaded the library."""
        if self.forked:
            raise ForkError(
                f"libnixlpush was loaded in pid {self.pid} and is used in pid {os.getpid()}: a Go "
                "library does not survive a fork. Open the engine or side channel in the "
                "process that uses it, or start that process with spawn or exec."
            )

    def call(self, name: str, *args: object) -> int:
        """Calls a function whose last parameter is the error struct.

        Returns what the function returns if that is not negative, else raises CallError.
        """
        self.check_process()
        error = new_error()
        result = getattr(self.dll, name)(*args, ctypes.byref(error))
        if result < 0:
            raise error_of(result, error)
        return result

    def version(self) -> str:
        self.check_process()
        return self.dll.nixlpush_version().decode()

    def open_handles(self) -> int:
        """How many handles are open in this process."""
        self.check_process()
        return self.dll.nixlpush_open_handles()


def new_error() -> _abi.Error:
    """An error struct for the library to fill."""
    return _abi.Error(struct_size=ctypes.sizeof(_abi.Error))


def error_of(code: int, error: _abi.Error) -> CallError:
    """The exception for a negative result."""
    return from_code(code, error.message.decode("utf-8", "replace"))


_lock = threading.Lock()
_library: Library | None = None


def load(path: str | os.PathLike[str] | None = None) -> Library:
    """The library of this process; loads it on first use.

    path: of the shared library. Default: the file beside this package.
    Raises LibraryNotFoundError, AbiMismatchError, ForkError, and ValueError if another file
    is loaded already (a process can hold one Go runtime of ours).
    """
    global _library
    if _library is not None:
        _library.check_process()  # in a forked child the lock may be held for ever
    with _lock:
        if _library is None:
            library = Library(find(path))
            logs.start(library)
            _library = library
        _library.check_process()
        if path is not None and not os.path.samefile(path, _library.path):
            raise ValueError(
                f"cannot load {path}: this process has loaded {_library.path}, and it can "
                "hold only one"
            )
        return _library


def find(path: str | os.PathLike[str] | None = None) -> Path:
    """Where the library is. Raises LibraryNotFoundError, which lists every place tried."""
    _refuse_musl()
    candidates = [Path(path)] if path is not None else [Path(__file__).with_name(NAME)]
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    tried = ", ".join(str(candidate) for candidate in candidates)
    raise LibraryNotFoundError(
        f"cannot find {NAME}; tried: {tried}. Install the nixlpush wheel, or build it with "
        "`make wheel` in a checkout."
    )


def _refuse_musl() -> None:
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        libc = None
    if not libc:
        raise LibraryNotFoundError(
            "libnixlpush needs glibc: this Python runs on another C library (musl, as on "
            "Alpine), in which Go shared libraries cannot be loaded. Use an image based on "
            "glibc."
        )


def _load(path: Path) -> ctypes.CDLL:
    try:
        dll = ctypes.CDLL(str(path))
        _abi.declare(dll)
    except OSError as error:
        raise LibraryNotFoundError(f"cannot load {path}: {error}") from error
    except AttributeError as error:
        raise LibraryNotFoundError(f"{path} is not a libnixlpush: {error}") from error
    found = dll.nixlpush_abi_version()
    if found // 1000 != _abi.ABI_VERSION // 1000:
        raise AbiMismatchError(
            f"{path} has interface version {found}, this package needs {_abi.ABI_VERSION} "
            "(thousands must be equal): install library and package from one wheel"
        )
    return dll
