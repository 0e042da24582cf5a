"""What a cluster is told: its members, and what keeps it from starting."""

from typing import Any

import pytest

from jackalope.broker.cluster.members import cluster_problems, members_of
from jackalope.broker.config.schema import ClusterConfig, ClusterLog, Config
from jackalope.cli import cluster as cli_cluster
from jackalope.cli.cluster import missing_packages

THREE = ("a=10.0.0.1", "b=10.0.0.2 native=1 http=2 amqp=3 management=4 route=5 peer=6", "c=[::1]")


def config(**changes: Any) -> Config:
    told = {"id": "c", "node": "a", "members": THREE, "secret": "s", **changes}
    return Config(cluster=ClusterConfig(**told))


def test_members_have_the_usual_ports_unless_told_otherwise() -> None:
    found = members_of(config())
    assert list(found) == ["a", "b", "c"]
    assert found["a"].address("native") == "10.0.0.1:7420"
    doors = ("native", "http", "amqp", "management", "route", "peer")
    assert [found["b"].address(door) for door in doors] == [f"10.0.0.2:{n}" for n in range(1, 7)]
    assert found["c"].address("http") == "[::1]:7421"
    assert cluster_problems(config()) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"members": THREE[:2]}, "two nodes are no cluster"),
        ({"members": (*THREE, "d=1.2.3.4")}, "one, three or five"),
        ({"members": ("a",)}, "write name=host"),
        ({"members": ("a=h", "a=i", "b=j")}, "'a' is a member twice"),
        ({"members": ("a=h door=1", *THREE[1:])}, "'door=1' is not one of native"),
        ({"members": ()}, "cluster.node: 'a' is not one of"),
        ({"node": "x"}, "cluster.node: 'x' is not one of a, b, c"),
        ({"secret": ""}, "cluster.secret: needed"),
        ({"beat_us": 800_000}, "the read lease must be at least twice the beat"),
        ({"log": ClusterLog.NATS}, "cluster.urls: needed"),
        ({"log": ClusterLog.POSTGRES}, "cluster.dsn: needed"),
        ({"log": ClusterLog.POSTGRES, "dsn": "x"}, "blobs.store: must be `s3`"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], problem: str) -> None:
    assert problem in "; ".join(cluster_problems(config(**changes)))


@pytest.mark.parametrize(("log", "extra"), [("embedded", "cluster"), ("postgres", "postgres")])
def test_a_missing_package_is_named(log: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ClusterConfig(log=ClusterLog(log))
    assert missing_packages(cluster) == []
    monkeypatch.setattr(cli_cluster, "find_spec", lambda _: None)
    assert missing_packages(cluster) == [
        f"cluster.log: `{log}` needs pip install 'jackalope[{extra}]'"
    ]
