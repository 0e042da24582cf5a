"""Each transcript was written down from RabbitMQ's answers, and ours must be the same.

`REWRITE=1` writes down what RabbitMQ says today. Where we mean to differ, a file of the same name
that ends in `.ours.txt` holds what we say, and the reference says why.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.doors.amqp import language
from tests.doors.amqp.harness import Broker

FOLDER = Path(__file__).parent / "transcripts"
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "amqp.md"

NAMES = sorted(path.stem for path in FOLDER.glob("*.txt") if not path.stem.endswith(".ours"))
OURS = sorted(path.stem.removesuffix(".ours") for path in FOLDER.glob("*.ours.txt"))


def played(path: Path, port: int) -> str:
    return language.text(language.Play(port).run(language.read(path)))


@pytest.mark.parametrize("name", NAMES)
def test_rabbitmq_says_this(name: str, rabbitmq: Broker) -> None:
    path = FOLDER / f"{name}.txt"
    told = played(path, rabbitmq.port)
    if os.environ.get("REWRITE"):
        path.write_text(told)
    assert told == path.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_we_say_the_same(name: str, ours: Broker) -> None:
    different = FOLDER / f"{name}.ours.txt"
    path = different if different.exists() else FOLDER / f"{name}.txt"
    assert played(path, ours.port) == path.read_text()


@pytest.mark.parametrize("name", OURS)
def test_a_difference_is_in_the_reference(name: str) -> None:
    assert f"`{name}`" in REFERENCE.read_text()
    assert (FOLDER / f"{name}.ours.txt").read_text() != (FOLDER / f"{name}.txt").read_text()
