# SPDX-License-Identifier: Apache-2.0
"""A prefill engine P and a decode engine D."""
import contextlib
import datetime
import signal
import time

from .engine import Engine
from .machine import OUT

START_SECONDS = 600


class Pair:
    """Two engines that live as long as the `with` block."""

    def __init__(self, machine, p, d, title, model="full"):
        self.title = title
        stamp = datetime.datetime.now().strftime("%H%M%S")
        folder = OUT / "logs" / f"{stamp}-{title.replace(' ', '_').replace('/', '-')}"
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        path = machine.tiny_model(model)
        self.p = Engine("P", p, machine, path, folder, device=0)
        self.d = Engine("D", d, machine, path, folder, device=1)

    def __enter__(self):
        # So that `finally` and `with` run when somebody ends this program.
        signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(SystemExit(143)))
        try:
            print(f"starting P and D ({self.title}); logs in {self.folder}", flush=True)
            self.p.start()
            self.d.start()
            self._wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        with contextlib.ExitStack() as both:  # D ends even if ending P raises
            both.callback(self.d.stop)
            both.callback(self.p.stop)

    def _wait(self):
        began = time.monotonic()
        told = 0
        waiting = [self.p, self.d]
        while waiting:
            waiting = [engine for engine in waiting if not engine.healthy()]
            passed = time.monotonic() - began
            if passed > START_SECONDS:
                names = " and ".join(engine.name for engine in waiting)
                raise RuntimeError(f"{names} not healthy after {START_SECONDS} s; logs in {self.folder}")
            if passed - told >= 10:
                told = passed
                names = " and ".join(engine.name for engine in waiting)
                print(f"  {passed:3.0f} s: waiting for {names or 'nothing'}", flush=True)
            time.sleep(0.5)
        print(f"  both healthy after {time.monotonic() - began:.0f} s", flush=True)
