# SPDX-License-Identifier: Apache-2.0
"""Time spent in a connector's methods by the thread that calls them."""
import contextlib
import time


class Timed:
    """Collects seconds by name."""

    def __init__(self):
        self.seconds = {}

    def reset(self):
        self.seconds = {}

    def total(self):
        return sum(self.seconds.values())

    @contextlib.contextmanager
    def span(self, name):
        began = time.perf_counter()
        try:
            yield
        finally:
            self._add(name, time.perf_counter() - began)

    def wrap(self, target):
        return _Wrapped(self, target)

    def _add(self, name, seconds):
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


class _Wrapped:
    """An object whose public methods are timed."""

    def __init__(self, timed, target):
        self._timed = timed
        self._target = target

    def __getattr__(self, name):
        value = getattr(self._target, name)
        if not callable(value) or name.startswith("_"):
            return value
        timed = self._timed

        def call(*arguments, **options):
            began = time.perf_counter()
            try:
                return value(*arguments, **options)
            finally:
                timed._add(name, time.perf_counter() - began)

        self.__dict__[name] = call  # the next look-up finds it without coming here
        return call
