"""Needs on the command line: how `submit` reads what a task asks of its worker."""

import pytest

from jackalope.cli.base import Failure
from jackalope.cli.commands.submit import Terms
from jackalope.core.shapes.needs import ONE, Needs
from jackalope.transport.address import Address
from tests.cli.conftest import Cli
from tests.cli.stub_worker import working
from tests.cli.test_commands import eventually


def test_numbers_and_sizes_are_resources_and_other_texts_are_labels() -> None:
    terms = Terms(
        need=["gpu=1", "mem=1KiB", "cpu=0.5", "arch=arm64", "arch=amd64"],
        prefer=["zone=a"],
        avoid=["tier=spot"],
        sticky="user-1",
    )
    assert terms.needs() == Needs(
        (("cpu", 500), ("gpu", 1_000), ("mem", 1_024_000)),
        (("arch", ("amd64", "arm64")),),
        (("zone", ("a",)),),
        (("tier", ("spot",)),),
        "user-1",
    )
    assert Terms().needs() is None


def test_what_a_task_needs_and_a_worker_has_is_shown(cli: Cli, address: Address) -> None:
    has = {"gpu": 2 * ONE, "mem": 64 * 2**30 * ONE}
    with working(address, "w1", "q", resources=has, labels={"arch": "arm64"}):
        wanted = ("--need", "gpu=1", "--need", "mem=8GiB", "--need", "arch=arm64")
        liked = ("--prefer", "zone=a", "--avoid", "tier=spot")
        task = cli("submit", "-q", "q", "--name", "stay", *wanted, *liked).out.strip()
        eventually(lambda: cli("status", task, "-f", "json").json["state"] == "running")
        shown = cli("status", task).out
        for row in ("needs  gpu=1, mem=8GiB, arch=arm64", "prefers  zone=a", "avoids  tier=spot"):
            assert row in shown
        shown = cli("workers", "--wide").out
        assert "gpu=1/2, mem=8GiB/64GiB" in shown
        assert "arch=arm64" in shown
        large = cli("submit", "-q", "q", "--name", "stay", "--need", "gpu=3").out.strip()
        assert "'w1', lacks 1 gpu" in cli("explain", large).out
        for each in (task, large):
            assert cli("kill", each).code == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"need": ["gpu=-1"]}, "gpu: must be 0 to"),
        ({"need": ["gpu=0"]}, "gpu: must be more than 0"),
        ({"need": ["gpu"]}, "--need: 'gpu' is not of the form NAME=VALUE"),
        ({"prefer": ["=a"]}, "--prefer: '=a' is not of the form"),
        ({"avoid": ["zone="]}, "--avoid: 'zone=' is not of the form"),
    ],
)
def test_what_cannot_be_read_is_refused_before_anything_is_sent(
    given: dict[str, list[str]], told: str
) -> None:
    with pytest.raises(Failure) as refused:
        Terms(need=given.get("need"), prefer=given.get("prefer"), avoid=given.get("avoid")).needs()
    assert told in str(refused.value)
