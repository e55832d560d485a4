# SPDX-License-Identifier: Apache-2.0
"""Fixtures. The tests run against the installed wheel, never against the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_sessionstart(session: pytest.Session) -> None:
    import nixlpush

    package = Path(nixlpush.__file__).parent
    if not (package / "libnixlpush.so.1").is_file():
        pytest.exit(f"{package} has no library: install the wheel and run against it", 2)


@pytest.fixture
def header() -> Path:
    """include/nixlpush.h of the checkout the tests lie in."""
    return HERE.parents[1] / "include" / "nixlpush.h"


class Finished(subprocess.CompletedProcess):
    """A finished script; `lines` is what it printed."""

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()


@pytest.fixture
def run_script() -> Callable[..., Finished]:
    """Runs Python code in a process of its own and fails if it does not end in time."""

    def run(code: str, *, timeout: float = 60, check: bool = True, **env: str) -> Finished:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "PYTHONPATH": _python_path(), **env},
            check=False,
        )
        if check and done.returncode:
            pytest.fail(f"status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return Finished(done.args, done.returncode, done.stdout, done.stderr)

    return run


def _python_path() -> str:
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(HERE), *([inherited] if inherited else [])])


@pytest.fixture
def panic_library() -> str:
    """A library built with the tag nixlpush_test, which can be made to panic."""
    path = os.environ.get("NIXLPUSH_TEST_LIBRARY")
    if not path:
        pytest.skip("NIXLPUSH_TEST_LIBRARY is not set: build it with `make lib-test`")
    return path
