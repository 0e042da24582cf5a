"""Who owns what is started: one launcher of one broker."""

from pathlib import Path

import pytest

from jackalope.broker.config.schema import ClusterConfig, Config, DataConfig
from jackalope.cli import serving
from jackalope.pools import launchers
from jackalope.pools.launcher import Launcher

LAUNCHERS = {name: {"type": "docker", "image": "worker:1"} for name in ("small", "large")}


def owners_in(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    cluster: ClusterConfig | None = None,
    given: dict[str, dict[str, str]] = LAUNCHERS,
) -> set[str]:
    owners = []

    def noting(settings: dict[str, object], home: Path, owner: str) -> Launcher:
        owners.append(owner)
        return make(settings, home, owner)

    make = launchers.make_launcher
    with monkeypatch.context() as patch:
        patch.setattr(launchers, "make_launcher", noting)
        config = Config(
            data=DataConfig(folder=str(folder)), cluster=cluster or ClusterConfig(), launchers=given
        )
        assert serving.make_launchers(config).keys() == given.keys()
    return set(owners)


def test_each_launcher_of_each_broker_is_an_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = owners_in(tmp_path / "one" / "data", monkeypatch)
    two = owners_in(tmp_path / "two" / "data", monkeypatch)
    assert len(one | two) == 4
    assert owners_in(tmp_path / "one" / "data", monkeypatch) == one


def test_the_nodes_of_a_cluster_own_together_what_all_of_them_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    remote = {name: {**each, "host": "tcp://docker:2375"} for name, each in LAUNCHERS.items()}
    for given, count in ((LAUNCHERS, 4), (remote, 2)):
        found = [
            owners_in(tmp_path / node, monkeypatch, ClusterConfig(id="c", node=node), given)
            for node in ("a", "b")
        ]
        assert len(found[0] | found[1]) == count
