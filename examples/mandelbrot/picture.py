"""A picture made of tiles, and how to write it as PNG with nothing but the standard library."""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path

#: How many pixels a tile measures, each way.
TILE = 64

#: After how many steps a point counts as one that does not escape.
STEPS = 160


class Picture:
    """Rows of bytes, filled tile by tile."""

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self._rows = [bytearray(width) for _ in range(height)]

    def corners(self) -> list[tuple[int, int]]:
        """Return the left upper corner of every tile."""
        return [
            (left, top)
            for top in range(0, self.height, TILE)
            for left in range(0, self.width, TILE)
        ]

    def paste(self, left: int, top: int, pixels: bytes) -> None:
        """Put a tile in its place."""
        across = min(TILE, self.width - left)
        for number in range(len(pixels) // across):
            row = pixels[number * across : (number + 1) * across]
            self._rows[top + number][left : left + across] = row

    def save(self, path: Path) -> None:
        """Write the picture as a PNG with a palette."""
        palette = b"".join(_colour(step) for step in range(256))
        lines = b"".join(b"\0" + bytes(row) for row in self._rows)
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 3, 0, 0, 0)
        path.write_bytes(
            b"\x89PNG\r\n\x1a\n"
            + _chunk(b"IHDR", header)
            + _chunk(b"PLTE", palette)
            + _chunk(b"IDAT", zlib.compress(lines, 6))
            + _chunk(b"IEND", b"")
        )


def _chunk(kind: bytes, body: bytes) -> bytes:
    checksum = zlib.crc32(kind + body)
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)


def _colour(step: int) -> bytes:
    """Return the colour of an escape time; the set itself is nearly black."""
    if step == 0:
        return bytes((8, 8, 16))
    turn = math.log(step) / math.log(STEPS)
    return bytes(
        int(127.5 * (1 + math.sin(math.tau * (turn * 1.4 + shift)))) for shift in (0.0, 0.12, 0.3)
    )
