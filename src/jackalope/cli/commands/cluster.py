"""Commands about a cluster: begin one."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from jackalope.cli.base import Exit, Failure, arg, opt

if TYPE_CHECKING:
    from jackalope.cli.output import Screen

_FILE = """\
# The same file on all nodes of the cluster. It has their secret: keep it private.
# Each node is started with its own name: jackalope serve --config {name} --node {first}

native: {{host: {host}}}
http: {{host: {host}}}
{exposed}cluster:
  id: "{id}"
  members:
{members}
  secret: "{secret}"
"""

_EXPOSED = """
# Needed where other machines connect: a certificate, and a key of `jackalope keys new`.
# tls: {cert: broker.crt, key: broker.key}
# auth: {keys: []}

"""


def init(
    screen: "Screen",
    file: Annotated[str, arg("FILE", "Where to write it.")] = "cluster.yaml",
    member: Annotated[
        list[str] | None,
        opt(
            "--member -m NAME=HOST",
            "A node, and where the others and their clients reach it; its ports may follow, as in "
            "'a=10.0.0.1 native=7500'. Repeatable: one, three or five.",
        ),
    ] = None,
    id: Annotated[  # noqa: A002  # The name of the option.
        str, opt("--id NAME", "The name of the cluster.", default="a random one")
    ] = "",
    source: Annotated[
        str,
        opt(
            "--from DATA",
            "The data folder of a broker that is stopped: the cluster goes on with what is in it. "
            "The first member must be started with it.",
        ),
    ] = "",
) -> None:
    """Write the configuration of a new cluster: one file, for all of its nodes.

    It has the members and a secret that was just made; only you may read it. Copy it to every
    machine. Each node then takes its own name from `jackalope serve --node`.

    Examples:
        jackalope cluster init -m a=10.0.0.1 -m b=10.0.0.2 -m c=10.0.0.3
        jackalope cluster init /etc/jackalope/shop.yaml --id shop -m a=db1 -m b=db2 -m c=db3
        jackalope cluster init --from jackalope-data -m a=10.0.0.1 -m b=10.0.0.2 -m c=10.0.0.3
    """
    from secrets import token_hex, token_urlsafe

    path = Path(file)
    if path.suffix not in {".yaml", ".yml"}:
        raise Failure(f"{path} must end in .yaml or .yml", code=Exit.USAGE)
    names, text = _written(path.name, id or token_hex(8), member or [], token_urlsafe(32))
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        hint = "a cluster has one secret: copy the file that is there, or choose another name"
        raise Failure(f"{path} exists already", hint) from None
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
    with os.fdopen(opened, "w", encoding="utf-8") as out:
        out.write(text)
        if source:
            out.write(f'  founder: "{names[0]}"\n')
    starts = [f"jackalope serve --config {path.name} --node {name}" for name in names]
    if source:
        _found(path, Path(source))
        starts[0] += f" --data {source}"
    told = [
        f"wrote {path}; copy it to every machine, and on each of them:",
        "  pip install 'jackalope[cluster,http]'",
        *(f"  {start}" for start in starts),
        "see docs/how-to/run-a-cluster.md for certificates, keys and what to do next",
    ]
    screen.show({"file": str(path), "members": names, "start": starts}, "\n".join(told))


def _found(file: Path, folder: Path) -> None:
    """Let a data folder be what the cluster begins with."""
    from jackalope.broker.clock import Clock
    from jackalope.broker.cluster.founding import found_from
    from jackalope.storage import StorageFault

    try:
        found_from(folder, Clock().now_us())
    except StorageFault as fault:
        file.unlink()
        raise Failure(str(fault), "nothing was written", Exit.STORAGE) from None


def _written(name: str, cluster: str, members: list[str], secret: str) -> tuple[list[str], str]:
    """Return the names of the nodes, and the text of their file."""
    from jackalope.broker.cluster.members import cluster_problems, members_of
    from jackalope.broker.config.exposure import is_loopback
    from jackalope.broker.config.loader import ConfigError, Given, Origin, Place, merge
    from jackalope.broker.config.schema import Config

    if not members:
        raise Failure("a cluster needs members", "-m a=10.0.0.1 -m b=... -m c=...", Exit.USAGE)
    flag = Origin(Place.FLAG, "--member")
    try:
        config: Config = merge(
            Given(("cluster", key), value, origin)
            for key, value, origin in (
                ("id", cluster, Origin(Place.FLAG, "--id")),
                ("node", members[0].partition("=")[0], flag),
                ("members", members, flag),
                ("secret", secret, flag),
            )
        ).config
    except ConfigError as error:
        raise _no_cluster([str(each) for each in error.problems]) from None
    if problems := cluster_problems(config):
        raise _no_cluster(problems)
    found = members_of(config)
    is_local = all(is_loopback(each.host) for each in found.values())
    return list(found), _FILE.format(
        id=cluster,
        name=name,
        first=next(iter(found)),
        host="127.0.0.1" if is_local else "0.0.0.0",  # noqa: S104  # What a cluster is for.
        exposed="" if is_local else _EXPOSED,
        members="\n".join(f'    - "{each}"' for each in members),
        secret=secret,
    )


def _no_cluster(problems: list[str]) -> Failure:
    return Failure("this is no cluster", "nothing was written", Exit.USAGE, problems)
