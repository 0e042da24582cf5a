"""Commands about a cluster."""

import stat
from pathlib import Path

import pytest
import yaml

from jackalope.broker.cluster.members import cluster_problems
from jackalope.broker.config.loader import load
from tests.cli.conftest import Cli

THREE = ("-m", "a=10.0.0.1", "-m", "b=10.0.0.2 native=7500", "-m", "c=10.0.0.3")


def test_init_writes_one_file_for_all_nodes(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    ran = cli("cluster", "init", str(path), "--id", "2026", *THREE)
    assert ran.code == 0, ran.err
    for name in "abc":
        assert f"jackalope serve --config shop.yaml --node {name}" in ran.out
        config = load(path, {}, {"--node": ("cluster.node", name)}).config
        assert cluster_problems(config) == []
        assert (config.cluster.id, config.cluster.node) == ("2026", name)
        assert config.native.host == config.http.host == "0.0.0.0"  # noqa: S104
    secret = load(path, {}, {}).config.cluster.secret
    assert len(secret) >= 40
    assert secret not in ran.out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    checked = cli("config", "check", "--config", str(path), "--node", "b")
    assert checked.code == 0, checked.err


def test_each_cluster_has_a_name_and_a_secret_of_its_own(cli: Cli, tmp_path: Path) -> None:
    made = []
    for name in ("one.yaml", "two.yaml"):
        ran = cli("cluster", "init", str(tmp_path / name), "-m", "a=127.0.0.1", "-f", "json")
        assert ran.json["members"] == ["a"]
        made.append(yaml.safe_load((tmp_path / name).read_text()))
    one, two = (each["cluster"] for each in made)
    assert one["id"] != two["id"]
    assert one["secret"] != two["secret"]
    assert made[0]["native"]["host"] == "127.0.0.1"  # No other machine is a member.


def test_init_overwrites_nothing(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: {id: mine}\n")
    ran = cli("cluster", "init", str(path), *THREE)
    assert ran.code == 1
    assert "exists already" in ran.err
    assert path.read_text() == "cluster: {id: mine}\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "a cluster needs members"),
        (("-m", "a=h", "-m", "b=i"), "Have three; or two brokers on one PostgreSQL"),
        (("-m", "a=h", "-m", "a=i", "-m", "b=j"), "'a' is a member twice"),
        (("-m", "10.0.0.1"), "write name=host"),
        (("-m", "a=h gopher=70"), "'gopher=70' is not one of native"),
        (("-m", "a=h", "--id", "of shops"), "cluster.id"),
        (tuple(x for n in "abcd" for x in ("-m", f"{n}=h{n}")), "one, three or five"),
    ],
)
def test_what_is_no_cluster_is_not_written(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], why: str
) -> None:
    ran = cli("cluster", "init", str(tmp_path / "cluster.yaml"), *arguments)
    assert ran.code == 2
    assert why in ran.err
    assert list(tmp_path.iterdir()) == []
