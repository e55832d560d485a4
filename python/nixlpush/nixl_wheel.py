# SPDX-License-Identifier: Apache-2.0
"""Finding the C library of an installed NIXL wheel, without importing it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

NAME = "libnixl_capi.so"
PACKAGES = ("nixl_cu13", "nixl_cu12")


def find() -> str | None:
    """Absolute path of libnixl_capi.so of the wheel that `import nixl` would use.

    vLLM imports NIXL's Python module in the same process, and both share one copy of NIXL
    only if they load the same file. None if no wheel is installed.
    """
    for package in _preferred():
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        site = Path(spec.origin).parent.parent
        library = site / f".{package}.mesonpy.libs" / NAME
        if library.is_file():
            return str(library)
    return None


def _preferred() -> list[str]:
    """The candidates, first the one that NIXL's own `nixl` package picks."""
    major = _cuda_major()
    packages = list(PACKAGES)
    if major is not None:
        packages.sort(key=lambda name: name != f"nixl_cu{major}")
    return packages


def _cuda_major() -> int | None:
    """The CUDA version that NIXL's meta package detects; None without it or without CUDA."""
    try:
        from nixl_meta_utils import detect_cuda_major
    except ImportError:
        return None
    return detect_cuda_major()
