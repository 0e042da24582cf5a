"""Limits of tags and by key, by the command line."""

from __future__ import annotations

import pytest

from jackalope.transport.address import Address
from tests.cli.conftest import Cli
from tests.cli.stub_worker import working
from tests.cli.test_commands import eventually
from tests.cli.test_width import shown

pytestmark = pytest.mark.usefixtures("address")


def test_a_tag(cli: Cli) -> None:
    assert "no limits" in cli("limits").out
    assert cli("limits", "set", "gpu", "4").out == "tag gpu: at most 4 at once\n"
    gpu = {"tag": "gpu", "limit": 4, "in_flight": 0, "waiting": 0}
    assert cli("limits", "-f", "json").json == [gpu]
    assert cli("limits", "show", "gpu", "-f", "json").json == gpu
    assert cli("limits", "set", "gpu", "many").code == 2
    assert cli("limits", "remove", "gpu").code == 0
    assert cli("limits", "-f", "json").json == []
    cli("limits", "set", "gpu", "4")
    assert cli("limits", "delete", "gpu", "--yes").out == "limit gpu is deleted\n"
    assert cli("limits", "-f", "json").json == []


def test_a_limit_keeps_what_is_not_given(cli: Cli) -> None:
    given = {
        "--queue": "mail",
        "--task": "send",
        "--concurrency": "2",
        "--rate": "100",
        "--per": "1m",
        "--burst": "20",
        "--cost": "3",
        "--on-full": "wait",
    }
    options = [word for pair in given.items() for word in pair]
    made = cli(
        "limits", "set", "per-user", "--key", "user", "--key", "tenant", *options, "-f", "json"
    )
    assert made.code == 0, made.err
    whole = {
        "queue": "mail",
        "task": "send",
        "keys": ["user", "tenant"],
        "concurrency": 2,
        "rate": 100,
        "per": "1m",
        "burst": 20,
        "cost": 3,
        "cost_key": "",
        "on_full": "wait",
    }
    assert made.json["settings"] == whole
    changed = cli("limits", "set", "per-user", "--rate", "50", "--cost", "tokens", "-f", "json")
    now = whole | {"rate": 50, "cost": 1, "cost_key": "tokens"}
    assert changed.json["settings"] == now
    # What was given once can be taken away again.
    words = ("--concurrency", "-1", "--key", "", "--task", "", "--cost", "2", "-f", "json")
    now |= {"concurrency": -1, "keys": [], "task": "", "cost": 2, "cost_key": ""}
    assert cli("limits", "set", "per-user", *words).json["settings"] == now
    assert [each["name"] for each in cli("limits", "list", "-f", "json").json] == ["per-user"]
    assert cli("limits", "delete", "per-user").code == 1  # Not without being sure.
    assert cli("limits", "delete", "per-user", "--yes", "-f", "json").json["deleted"] is True
    assert cli("limits", "-f", "json").json == []


def test_a_tag_and_a_limit_of_the_same_name(cli: Cli) -> None:
    cli("limits", "set", "gpu", "4")
    cli("limits", "set", "gpu", "--key", "card", "--concurrency", "1")
    assert cli("limits", "show", "gpu", "-f", "json").json["settings"]["keys"] == ["card"]
    cli("limits", "delete", "gpu", "--yes")
    [left] = cli("limits", "-f", "json").json
    assert left["tag"] == "gpu"


@pytest.mark.parametrize(
    ("arguments", "code", "problems"),
    [
        (["set", "x"], 2, ["give a number for the limit of a tag, or options"]),
        (["set", "x", "3", "--rate", "1"], 2, ["not both"]),
        (["set", "x", "--rate", "lots"], 2, ["rate: must be a whole number, got 'lots'"]),
        (["set", "x", "--concurrency", "-2"], 2, ["concurrency: must be -1 to"]),
        (["set", "x", "--per", "soon"], 2, ["per: ", "'soon'"]),
        (
            ["set", "x", "--rate", "x", "--on-full", "waits"],
            2,
            ["rate: must be", "on_full: must be wait or", "did you mean wait?"],
        ),
        (["set", "x", "--concurrency", "1", "--burst", "3"], 1, ["burst: is for a limit with"]),
        (["set", "x", "--rate", "1", "--cost", "5"], 1, ["raise burst"]),
        (["show", "x"], 1, ["no limit 'x': `jackalope limits` lists them"]),
        (["delete", "x", "--yes"], 1, ["no limit 'x'"]),
    ],
)
def test_bad_input_is_named(cli: Cli, arguments: list[str], code: int, problems: list[str]) -> None:
    ran = cli("limits", *arguments)
    assert ran.code == code, ran.err
    assert ran.err.count("\n") == 1
    assert all(problem in ran.err for problem in problems), ran.err
    assert cli("limits", "-f", "json").json == []


def test_what_runs_and_waits_fits_80_columns(cli: Cli, address: Address) -> None:
    name = "a-limit-with-a-name-that-is-rather-long-for-a-column"
    cli("limits", "set", name, "--key", "user", "--key", "tenant", "--concurrency", "1")
    cli("limits", "set", "gpu", "1")
    cli("limits", "set", "hourly", "--rate", "1", "--per", "1h", "--queue", "other")
    with working(address, "w1", "images", "other"):
        for user in ("ann", "ann", "ann", "bob"):
            keys = ("--keys", f"user={user}", "--keys", "tenant=acme")
            cli("submit", "-q", "images", "--name", "stay", "--tag", f"of-{user}", *keys)
        for _ in range(2):
            cli("submit", "-q", "other", "--name", "finish", "--tag", "gpu")

        def limits() -> dict[str, tuple[int, int]]:
            views = cli("limits", "-f", "json").json
            return {v.get("name") or v["tag"]: (v["in_flight"], v["waiting"]) for v in views}

        eventually(lambda: limits() == {"gpu": (0, 1), name: (2, 2), "hourly": (0, 1)})
        narrow = shown(address, "limits")
        rows = [row.split() for row in narrow.splitlines()]
        [row] = [row for row in rows if row and row[0].startswith("a-limit")]
        assert row[-4:] == ["-", "2", "2", "-"]
        [row] = [row for row in rows if row and row[0] == "hourly"]
        assert row[2:6] == ["-", "1/1h", "0", "1"]
        assert row[6] == "in"  # An hour from now.
        assert name not in narrow
        assert name in shown(address, "limits", "--wide", columns=170)
        values = shown(address, "limits", "show", name)
        [ann] = [row.split() for row in values.splitlines() if row.startswith("ann")]
        assert ann == ["ann", "acme", "1", "2", "-"]
        gates = cli("limits", "show", name, "-f", "json").json["gates"]
        assert [gate["values"] for gate in gates] == [["ann", "acme"], ["bob", "acme"]]


def test_help_teaches(cli: Cli) -> None:
    text = cli("limits", "set", "--help").out
    for word in ("--key user --concurrency 2", "--rate 100 --per 1m --burst 20", "set gpu 4"):
        assert word in text
