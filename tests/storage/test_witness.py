"""The witness: what it remembers, and what damage to it means."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from jackalope.storage.faults import Corrupt
from jackalope.storage.witness import Witness, read_witness

SLOTS = (0, 4096)


def spoil(path: Path, *offsets: int) -> None:
    with path.open("r+b") as file:
        for offset in offsets:
            file.seek(offset)
            file.write(b"damaged!")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a witness of the batches 6 and 7, one in each slot."""
    path = tmp_path / "witness"
    with closing(Witness(path)) as witness:
        witness.note(6)
        witness.note(7)
        witness.note(5)
    return path


def test_it_remembers_the_highest(path: Path) -> None:
    assert read_witness(path) == 7
    with closing(Witness(path)) as witness:
        assert witness.highest == 7
        witness.refuse_damaged()


def test_there_may_be_none(tmp_path: Path) -> None:
    assert read_witness(tmp_path / "witness") is None
    with closing(Witness(tmp_path / "witness")) as witness:
        assert witness.highest == 0
        witness.refuse_damaged()


@pytest.mark.parametrize(("torn", "left"), [(SLOTS[0], 6), (SLOTS[1], 7)])
def test_a_torn_write_costs_one_slot(path: Path, torn: int, left: int) -> None:
    spoil(path, torn)
    assert read_witness(path) == left


def test_damage_to_both_slots_is_refused(path: Path) -> None:
    spoil(path, *SLOTS)
    assert read_witness(path) is None
    with closing(Witness(path)) as witness, pytest.raises(Corrupt, match="accept-loss"):
        witness.refuse_damaged()


def test_a_write_that_fails_fails_no_batch(path: Path) -> None:
    witness = Witness(path)
    os.close(witness._descriptor)
    witness.note(8)
    assert witness.highest == 8
    assert read_witness(path) == 7
