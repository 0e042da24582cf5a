"""The tasks of the demo: one tile of the Mandelbrot set.

Plain Python on purpose: it takes a while, and there is nothing to install.
"""

from __future__ import annotations

import os

from examples.mandelbrot.picture import STEPS, TILE
from jackalope import Jackalope

app = Jackalope(os.environ.get("JACKALOPE_BROKER", "jackalope://localhost:7420"))


@app.task(queue="tiles", name="demo.tile", retries=3)
def tile(left: int, top: int, width: int, height: int) -> bytes:
    """Return the escape times of one tile of a picture, a byte a pixel."""
    scale = 3.0 / width
    pixels = bytearray()
    for y in range(top, min(top + TILE, height)):
        imaginary = (y - height / 2) * scale
        for x in range(left, min(left + TILE, width)):
            pixels.append(_escape((x - width * 0.72) * scale, imaginary))
    return bytes(pixels)


def _escape(real: float, imaginary: float) -> int:
    """Return after how many steps a point escapes; 0 if it does not."""
    x = y = 0.0
    for step in range(1, STEPS):
        xx, yy = x * x, y * y
        if xx + yy > 4.0:
            return step
        y = 2.0 * x * y + imaginary
        x = xx - yy + real
    return 0
