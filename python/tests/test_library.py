# SPDX-License-Identifier: Apache-2.0
"""Finding and loading the library, and what must not load it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nixlpush import LibraryNotFoundError, library


def test_import_does_not_load_the_library(run_script: Callable) -> None:
    done = run_script(
        """
        import nixlpush
        print("libnixlpush" in open("/proc/self/maps").read())
        try:
            nixlpush.SideChannel.open("127.0.0.1", 0).close()
        finally:
            print("libnixlpush" in open("/proc/self/maps").read())
        """
    )
    assert done.lines == ["False", "True"]


def test_import_needs_nothing_but_the_standard_library(run_script: Callable) -> None:
    done = run_script(
        """
        import sys
        import nixlpush
        print(*sorted(set(sys.modules) & {"torch", "vllm", "numpy", "zmq", "nixl"}))
        """
    )
    assert done.lines == [""]


def test_a_missing_library_is_told_with_what_was_tried(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.so"
    with pytest.raises(LibraryNotFoundError, match="tried: .*nowhere.so.*make wheel"):
        library.find(missing)


def test_a_file_that_is_no_library(tmp_path: Path, run_script: Callable) -> None:
    path = tmp_path / "text.so"
    path.write_text("no library")
    done = run_script(
        f"""
        import nixlpush
        try:
            nixlpush.SideChannel.open("127.0.0.1", 0, library_path={str(path)!r})
        except nixlpush.LibraryNotFoundError as error:
            print(error)
        """
    )
    assert "cannot load" in done.stdout


def test_musl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def confstr(name: str) -> str:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "confstr", confstr)
    with pytest.raises(LibraryNotFoundError, match="musl"):
        library.find()


def test_another_interface_version_is_refused_with_both_numbers(
    tmp_path: Path, run_script: Callable, header: Path
) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = tmp_path / "old.c"
    names = [name for name in library._abi.PROTOTYPES if name != "nixlpush_abi_version"]
    source.write_text(
        "unsigned nixlpush_abi_version(void) { return 7003; }\n"
        + "".join(f"int {name}(void) {{ return 0; }}\n" for name in names)
    )
    path = tmp_path / "old.so"
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    done = run_script(
        f"""
        import nixlpush
        try:
            nixlpush.SideChannel.open("127.0.0.1", 0, library_path={str(path)!r})
        except nixlpush.AbiMismatchError as error:
            print(error)
        """
    )
    assert "7003" in done.stdout
    assert "1000" in done.stdout


def test_a_second_library_is_refused(tmp_path: Path, run_script: Callable) -> None:
    other = tmp_path / "other.so"
    shutil.copy(library.find(), other)
    done = run_script(
        f"""
        import nixlpush
        nixlpush.SideChannel.open("127.0.0.1", 0).close()
        try:
            nixlpush.SideChannel.open("127.0.0.1", 0, library_path={str(other)!r})
        except ValueError as error:
            print(error)
        """
    )
    assert "can hold only one" in done.stdout
