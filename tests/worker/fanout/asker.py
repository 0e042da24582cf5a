"""A client of the chaos: asks one request after the other, and writes down what it got.

Run as a process: FOLDER NAME. Whoever starts it again under the same name goes on where it
was killed: what it asked and got no answer to, it asks again. Ends when it is told to stop and has
an answer to everything.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.worker.fanout.application import CENSUS_ITEMS, app, census


async def ask(folder: Path, name: str) -> None:
    journal = folder / f"{name}.journal"
    number = asked_of(journal)[1]
    async with app:
        while number or not (folder / "stop").exists():
            number = number or 1 + asked_of(journal)[0]
            note(journal, f"asked {number}")
            answer = await census.request(number)
            is_right = answer.value == [number + item for item in range(CENSUS_ITEMS)]
            note(journal, f"answered {number} {answer.how} {'right' if is_right else answer.value}")
            number = 0


def asked_of(journal: Path) -> tuple[int, int]:
    """Return the last number that was asked, and the same again if it has no answer yet."""
    last = pending = 0
    for word, number, *_ in lines_of(journal):
        last = int(number)
        pending = last if word == "asked" else 0
    return last, pending


def lines_of(journal: Path) -> list[list[str]]:
    return [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []


def note(journal: Path, line: str) -> None:
    """Add a line with one write, so that whoever is killed leaves it whole or not at all."""
    with journal.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


if __name__ == "__main__":
    asyncio.run(ask(Path(sys.argv[1]), sys.argv[2]))
