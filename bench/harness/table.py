# SPDX-License-Identifier: Apache-2.0
"""Plain text tables and numbers."""


class Table:
    """Prints one row at a time, so that a long run shows how far it is."""

    def __init__(self, *columns):
        self.widths = [max(len(title), width) for title, width in columns]
        self.row(*(title for title, _ in columns))
        print("  ".join("-" * width for width in self.widths), flush=True)

    def row(self, *cells):
        texts = (str(cell).rjust(width) for cell, width in zip(cells, self.widths, strict=True))
        print("  ".join(texts), flush=True)


def ms(seconds):
    return f"{seconds * 1e3:.2f}"


def size(count):
    """Bytes, with a unit."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
