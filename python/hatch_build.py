# SPDX-License-Identifier: Apache-2.0
"""Gives the wheel the version and the platform of the library in it. build_wheel.sh finds out
both and puts the library in place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


def _of_library(variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise RuntimeError(
            "there is no libnixlpush.so.1 to put into the wheel: run `make lib`, then "
            "`make wheel`, in the checkout"
        )
    return value


class VersionHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        metadata["version"] = _of_library("NIXLPUSH_VERSION")


class PlatformHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = Path(self.root) / "nixlpush" / "libnixlpush.so.1"
        if not library.is_file():
            raise RuntimeError(f"{library} is missing: run `make wheel` in the checkout")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_of_library('NIXLPUSH_WHEEL_PLATFORM')}"
