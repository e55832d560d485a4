# SPDX-License-Identifier: Apache-2.0
"""Import this first in a test module that needs vLLM: without vLLM the module is skipped, or
fails if NIXLPUSH_REQUIRE_VLLM is 1."""

from __future__ import annotations

import os

import pytest

try:
    import vllm  # noqa: F401
except ImportError as error:
    if os.environ.get("NIXLPUSH_REQUIRE_VLLM") == "1":
        raise
    pytest.skip(f"vLLM is not installed: {error}", allow_module_level=True)
