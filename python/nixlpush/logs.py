# SPDX-License-Identifier: Apache-2.0
"""Log lines of the library go to `logging.getLogger("nixlpush")`.

The library never writes to stdout or stderr. A daemon thread sleeps until its log
descriptor is readable and hands the lines over; it costs nothing while none come.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import os
import select
import threading
from typing import TYPE_CHECKING

from nixlpush import _abi

if TYPE_CHECKING:
    from nixlpush.library import Library

LOGGER = logging.getLogger("nixlpush")
_BUFFER_SIZE = 64 * 1024


class Pump:
    """Forwards the log lines of one library until stopped."""

    def __init__(self, library: Library, fd: int) -> None:
        self._library = library
        self._fd = fd
        self._stop_read, self._stop_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._buffer = ctypes.create_string_buffer(_BUFFER_SIZE)
        self._thread = threading.Thread(target=self._run, name="nixlpush-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Forwards what waits and ends the thread. In a forked child the thread does not
        live, so nothing happens."""
        if self._thread.is_alive():
            os.write(self._stop_write, b"x")
            self._thread.join(timeout=2)

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        poller.register(self._stop_read, select.POLLIN)
        stopping = False
        while not stopping:
            stopping = any(fd == self._stop_read for fd, _ in poller.poll())
            self._forward()

    def _forward(self) -> None:
        while True:
            size = self._library.dll.nixlpush_drain_log(self._buffer, len(self._buffer))
            if size == _abi.ESHORT:
                self._buffer = ctypes.create_string_buffer(2 * len(self._buffer))
            elif size <= 0:
                return
            else:
                text = ctypes.string_at(self._buffer, size).decode("utf-8", "replace")
                for line in text.splitlines():
                    emit(line)


def emit(line: str) -> None:
    """Logs one "<level>\\t<text>". A handler that fails must not end the thread."""
    level, _, text = line.partition("\t")
    with contextlib.suppress(Exception):
        LOGGER.log(int(level), "%s", text)


def start(library: Library) -> None:
    """Starts forwarding for a library that was just loaded, until the interpreter exits."""
    if LOGGER.isEnabledFor(logging.DEBUG):
        library.dll.nixlpush_log_level(logging.DEBUG)
    fd = library.dll.nixlpush_log_fd()
    if fd < 0:
        LOGGER.warning("the log of libnixlpush cannot be read: error %d", fd)
        return
    pump = Pump(library, fd)
    pump.start()
    atexit.register(pump.stop)
