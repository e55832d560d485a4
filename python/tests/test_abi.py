# SPDX-License-Identifier: Apache-2.0
"""The ctypes declarations against the header, as a C compiler sees it."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nixlpush import _abi

STRUCTS = {
    "nixlpush_error": _abi.Error,
    "nixlpush_param": _abi.Param,
    "nixlpush_backend": _abi.Backend,
    "nixlpush_options": _abi.Options,
    "nixlpush_part": _abi.Part,
    "nixlpush_region": _abi.Region,
    "nixlpush_member": _abi.Member,
    "nixlpush_stock_region": _abi.StockRegion,
    "nixlpush_memory": _abi.Memory,
    "nixlpush_layout": _abi.Layout,
    "nixlpush_blocks": _abi.Blocks,
    "nixlpush_expect": _abi.Expect,
    "nixlpush_offer": _abi.Offer,
    "nixlpush_step": _abi.Step,
    "nixlpush_event": _abi.Event,
    "nixlpush_stats": _abi.Stats,
}


@pytest.fixture
def compiler() -> str:
    path = shutil.which("gcc") or shutil.which("cc")
    if path is None:
        pytest.skip("no C compiler")
    return path


def python_layout() -> dict[str, int]:
    layout = {}
    for name, struct in STRUCTS.items():
        layout[name] = ctypes.sizeof(struct)
        for field, *_ in struct._fields_:
            layout[f"{name}.{field}"] = getattr(struct, field).offset
    return layout


def test_every_struct_and_field_is_where_c_has_it(
    compiler: str, header: Path, tmp_path: Path
) -> None:
    expected = python_layout()
    prints = [
        f'printf("{name} %zu\\n", '
        + ("sizeof({})" if "." not in name else "offsetof({}, {})").format(*name.split("."))
        + ");"
        for name in expected
    ]
    source = tmp_path / "layout.c"
    source.write_text(
        f'#include <stdio.h>\n#include "{header}"\nint main(void) {{ {"".join(prints)} }}\n'
    )
    program = tmp_path / "layout"
    subprocess.run([compiler, str(source), "-o", str(program)], check=True)
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    assert {n: int(v) for n, v in (line.split() for line in printed.splitlines())} == expected


def test_no_struct_of_the_header_is_missing(header: Path) -> None:
    declared = set(re.findall(r"^typedef struct (\w+) \{", header.read_text(), re.M))
    assert declared == set(STRUCTS)


def test_no_field_of_the_header_is_missing(header: Path) -> None:
    for name, body in re.findall(
        r"^typedef struct (\w+) \{(.*?)^\}", header.read_text(), re.M | re.S
    ):
        text = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        fields = re.findall(r"(\w+)(?:\[\d+\])?\s*[,;]", text)
        assert fields == [field for field, *_ in STRUCTS[name]._fields_], name


def test_every_constant_has_the_headers_value(header: Path) -> None:
    code = re.sub(r" */\*.*?\*/", "", header.read_text(), flags=re.S)
    values = dict(re.findall(r"^#define NIXLPUSH_(\w+) \(?(-?\d\w*?)u?\)?$", code, re.M))
    assert "ABI_VERSION" in values
    assert {name: getattr(_abi, name) for name in values} == {
        name: int(value, 0) for name, value in values.items()
    }


def test_every_function_is_declared(header: Path) -> None:
    functions = set(re.findall(r"^[a-z].*?\b(nixlpush_\w+)\(", header.read_text(), re.M))
    assert functions == set(_abi.PROTOTYPES)


def test_every_function_has_the_headers_parameter_count(header: Path) -> None:
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    for name, parameters in re.findall(r"\b(nixlpush_\w+)\(([^)]*)\);", text):
        count = 0 if parameters.strip() == "void" else parameters.count(",") + 1
        assert len(_abi.PROTOTYPES[name][1]) == count, name
