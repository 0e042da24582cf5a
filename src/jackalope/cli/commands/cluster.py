"""Commands about a cluster: begin one, look at its members, move the lead, change it."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from jackalope.cli.base import Exit, Failure, arg, opt
from jackalope.cli.formatting import number, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.broker.cluster.overview import ClusterView
    from jackalope.broker.config.schema import Config
    from jackalope.cli.member_calls import Members
    from jackalope.cli.output import Screen

#: How long another node may take to lead after a step-down.
_LED_S = 30

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
    if source:
        text += f'  founder: "{names[0]}"\n'
    write_new(path, text)
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
    from jackalope.storage.data_folder import SHARDS
    from jackalope.storage.snapshots import FOUNDING

    if (folder / SHARDS / "0" / FOUNDING).exists():
        return  # `cluster restore` has made it.
    try:
        found_from(folder, Clock().now_us())
    except StorageFault as fault:
        file.unlink()
        raise Failure(str(fault), "nothing was written", Exit.STORAGE) from None


def write_new(path: Path, text: str) -> None:
    """Write a file that only its owner may read; never over another."""
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        hint = "a cluster has one secret: copy the file that is there, or choose another name"
        raise Failure(f"{path} exists already", hint) from None
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
    with os.fdopen(opened, "w", encoding="utf-8") as out:
        out.write(text)


def _written(name: str, cluster: str, members: list[str], secret: str) -> tuple[list[str], str]:
    """Return the names of the nodes, and the text of their file."""
    from jackalope.broker.cluster.members import members_of
    from jackalope.broker.config.exposure import is_loopback

    if not members:
        raise Failure("a cluster needs members", "-m a=10.0.0.1 -m b=... -m c=...", Exit.USAGE)
    found = members_of(_check(cluster, members, secret))
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


def _check(cluster: str, members: list[str], secret: str) -> "Config":
    """Return the configuration of a node, if these can be a cluster."""
    from jackalope.broker.cluster.members import cluster_problems
    from jackalope.broker.config.loader import ConfigError, Given, Origin, Place, merge

    flag = Origin(Place.FLAG, "--member")
    try:
        config = merge(
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
    return config


def _no_cluster(problems: list[str]) -> Failure:
    return Failure("this is no cluster", "nothing was written", Exit.USAGE, problems)


# The members.

_CONFIG = opt(
    "--config FILE",
    "The file of the cluster; by default that of JACKALOPE_CONFIG, or cluster.yaml.",
    default=False,
)

File = Annotated[str, _CONFIG]


def config_path(file: str) -> Path:
    return Path(file or os.environ.get("JACKALOPE_CONFIG", "") or "cluster.yaml")


def _loaded(file: str) -> "Config":
    from jackalope.broker.config.loader import ConfigError, load
    from jackalope.cli.commands.serve import bad_config

    path = config_path(file)
    if not path.exists():
        hint = "name the file that `cluster init` has written with --config"
        raise Failure(f"{path} does not exist", hint, Exit.USAGE)
    try:
        return load(path, os.environ, {}).config
    except ConfigError as error:
        raise bad_config([str(problem) for problem in error.problems]) from None


def members_in(file: str) -> "Members":
    """Read who the members are."""
    from jackalope.cli.commands.serve import bad_config
    from jackalope.cli.member_calls import Members

    config = _loaded(file)
    try:
        members = Members(config)
    except ValueError as error:
        raise bad_config([str(error)]) from None
    if not config.cluster.id:
        raise Failure(f"{config_path(file)} has no cluster", "cluster.id is empty", Exit.USAGE)
    return members


def status(screen: "Screen", config: File = "") -> Exit:
    """Show the members of a cluster: who leads, how far each is, and what is wrong.

    Asks every member on its peer port, so it works while some are down or none leads. With the file
    of a standby, shows how far it is behind the broker or cluster that it follows.

    Exits with 0 if all is well, 5 if something is to be done, 6 if no node leads.

    Examples:
        jackalope cluster status
        jackalope cluster status --config /etc/jackalope/shop.yaml --format json
        jackalope cluster status --config standby.yaml
    """
    from jackalope.cli.member_calls import plain, standby_view

    loaded = _loaded(config)
    if loaded.peer.follow:
        view = asyncio.run(standby_view(loaded))
    else:
        view = asyncio.run(members_in(config).overview())
    screen.show(plain(view), lambda: _draw(view))
    return {"healthy": Exit.DONE, "degraded": Exit.DEGRADED}.get(view.condition, Exit.NO_LEADER)


def _draw(view: "ClusterView") -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from jackalope.cli.output import dim, table

    drawn = table(
        *("node", "role", ">epoch", ">applied", ">lag", ">clock", "version", ">level", "heard")
    )
    for each in view.members:
        is_here = each.role != "unreachable"
        drawn.add_row(
            Text(each.node, "bold") if each.node == view.leader else each.node,
            each.role if is_here else Text(each.role, "red"),
            str(each.epoch) if is_here else dim("-"),
            number(each.applied) if is_here else dim("-"),
            number(each.lag) if is_here else dim("-"),
            f"{each.clock_offset_s:+.3f} s" if is_here else dim("-"),
            each.version or dim("-"),
            str(each.level_max) if is_here else dim("-"),
            "now" if is_here else dim("no answer"),
        )
    tone = {"healthy": "green", "degraded": "yellow"}.get(view.condition, "red")
    what = "standby of" if view.members[-1].node == "standby" else "cluster"
    head = Text.assemble(f"{what} {view.cluster}: ", (view.condition, tone))
    log = [] if view.log is None else [dim(_log_line(view))]
    return Group(head, drawn, *log, *(Text(each, "yellow") for each in view.problems))


def _log_line(view: "ClusterView") -> str:
    log = view.log
    if log is None:
        return ""
    current = sum(each.is_current for each in log.copies)
    copies = f", {current} of {len(log.copies)} copies current" if log.copies else ""
    led = f", led by {log.leader}" if log.leader else ""
    return f"log: {log.engine}, level {view.level}, {size(log.size)}{copies}{led}"


def step_down(
    screen: "Screen",
    to: Annotated[
        str, opt("--to NODE", "The node that is to lead.", default="any that follows")
    ] = "",
    config: File = "",
) -> None:
    """Let another node lead, and return when one does.

    The leader finishes what it decides, hands over, and goes on as a follower. Clients and workers
    connect to the new leader by themselves.

    Examples:
        jackalope cluster step-down
        jackalope cluster step-down --to b
    """
    from jackalope.broker.cluster.peer_link import PeerGone
    from jackalope.wire.peer import AskStepDown, Done

    members = members_in(config)
    view = asyncio.run(members.overview())
    before = _leader_of(view)
    if to:
        _check_successor(view, to)
    try:
        asyncio.run(members.ask(before, AskStepDown(to), Done))
    except PeerGone as gone:
        raise Failure(f"{before} did not step down", str(gone)) from None
    after = asyncio.run(_led(members, view.epoch))
    screen.show({"before": before, "leader": after}, f"{before} has stepped down; {after} leads")


def _leader_of(view: "ClusterView") -> str:
    if not view.leader:
        raise Failure("no node leads", "`jackalope cluster status` shows the members")
    return view.leader


def _check_successor(view: "ClusterView", to: str) -> None:
    found = next((each for each in view.members if each.node == to), None)
    if found is None:
        names = ", ".join(each.node for each in view.members)
        raise Failure(f"{to!r} is not a member", f"one of {names}", Exit.USAGE)
    if to == view.leader:
        raise Failure(f"{to} leads already", code=Exit.USAGE)
    if found.role != "following" or found.why:
        raise Failure(f"{to} cannot lead", f"it is {found.role}: {found.why}".rstrip(": "))


async def _led(members: "Members", epoch: int) -> str:
    """Return who leads after an epoch."""
    end = asyncio.get_running_loop().time() + _LED_S
    while asyncio.get_running_loop().time() < end:
        view = await members.overview()
        if view.leader and view.epoch > epoch:
            return view.leader
        await asyncio.sleep(0.2)
    raise Failure(f"no other node leads after {_LED_S} s", "`jackalope cluster status` says why")


def upgrade(screen: "Screen", config: File = "") -> None:
    """Use what the version of all members can do: raise the level of the log.

    While members have different versions the leader writes only what the oldest of them reads.
    This is the last step of an upgrade, and cannot be taken back: older versions can then no longer
    join. Refused while a member does not read the new level, or does not answer.

    Examples:
        jackalope cluster upgrade
    """
    from jackalope.broker.cluster.peer_link import PeerGone
    from jackalope.core.records import LEVEL
    from jackalope.wire.peer import AskRaise, Done

    members = members_in(config)
    view = asyncio.run(members.overview())
    leader = _leader_of(view)
    wanted = max(LEVEL, *(each.level_max for each in view.members))
    lacking = [
        f"{each.node} does not answer: {each.why}"
        if each.role == "unreachable"
        else f"{each.node} (Jackalope {each.version}) reads up to {each.level_max}"
        for each in view.members
        if each.role == "unreachable" or each.level_max < wanted
    ]
    if lacking:
        hint = f"it stays at level {view.level}"
        raise Failure(f"not every member reads level {wanted}", hint, details=lacking)
    if view.level < wanted:
        try:
            asyncio.run(members.ask(leader, AskRaise(wanted), Done))
        except PeerGone as gone:
            raise Failure("the level was not raised", str(gone)) from None
    was = "was already" if view.level >= wanted else f"is raised from {view.level} and is now"
    screen.show({"before": view.level, "level": wanted}, f"the log {was} at level {wanted}")


def join(
    screen: "Screen",
    member: Annotated[
        list[str],
        arg("NAME=HOST", "Machines to add; or one whose name is a member, to take its place."),
    ],
    out: Annotated[
        str, opt("--out FILE", "Where to write the new file.", default="next to the old one")
    ] = "",
    config: File = "",
) -> None:
    """Prepare a cluster for more machines, or for one in the place of another.

    Checks that it is safe now, writes the file with the new list of members, and says what to do on
    which machine. It changes no running node: members of a replicated log are changed by hand, one
    at a time.

    Examples:
        jackalope cluster join b=10.0.0.7
        jackalope cluster join d=10.0.0.4 e=10.0.0.5
    """
    members = members_in(config)
    view = asyncio.run(members.overview())
    leader = _leader_of(view)
    path = config_path(config)
    text, names = _joined(path, member)
    replaced = [name for name in names if name in members.all]
    problems = _not_now(view, replaced)
    if problems:
        hint = "a cluster that changes has one node less to lose"
        raise Failure("not now", hint, details=problems)
    target = Path(out) if out else path.with_name(f"{path.stem}-next{path.suffix}")
    write_new(target, text)
    others = [name for name in members.all if name not in replaced and name != leader]
    steps = _steps(target, others, leader, names, is_added=len(replaced) < len(names))
    screen.show({"file": str(target), "steps": steps}, "\n".join([f"wrote {target}", *steps]))


def _joined(path: Path, added: list[str]) -> tuple[str, list[str]]:
    """Return the file of a cluster with other members, and the names of those that are new."""
    import yaml

    if path.suffix not in {".yaml", ".yml"}:
        raise Failure(f"{path} is not YAML", "change cluster.members in it yourself", Exit.USAGE)
    data = yaml.safe_load(path.read_text("utf-8"))
    found = {each.partition("=")[0]: each for each in data["cluster"]["members"]}
    new = {each.partition("=")[0]: each for each in added}
    cluster = data["cluster"]
    cluster["members"] = list((found | new).values())
    if cluster.get("log", "embedded") == "embedded":
        _check(str(cluster["id"]), cluster["members"], str(cluster.get("secret", "")))
    return yaml.safe_dump(data, sort_keys=False), list(new)


def _not_now(view: "ClusterView", replaced: list[str]) -> list[str]:
    """Say what speaks against changing the members just now."""
    found = []
    for each in view.members:
        if each.node in replaced:
            if each.role != "unreachable":
                found.append(f"{each.node} still answers: stop it first")
        elif each.role not in ("leading", "following"):
            found.append(f"{each.node} is {each.role}: {each.why}".rstrip(": "))
    if view.log is not None:
        copies = [each for each in view.log.copies if each.node not in replaced]
        found += [f"the copy of the log at {e.node} is behind" for e in copies if not e.is_current]
    return found


def _steps(
    file: Path, others: list[str], leader: str, names: list[str], *, is_added: bool
) -> list[str]:
    """Say what to do, in order."""
    follow = f" ({', '.join(others)})" if others else ""
    until = "after each, wait until `jackalope cluster status` shows it following"
    steps = [
        f"1. copy {file.name} to every machine, in the place of the file that is there",
        f"2. restart the followers one after the other{follow}; {until}",
        f"3. `jackalope cluster step-down`, then restart {leader}",
        *(
            f"4. on the machine of {name}, with no data folder: jackalope serve --config "
            f"{file.name} --node {name}"
            for name in names
        ),
        "5. wait until it follows: it copies the state of another node",
    ]
    if is_added:
        steps.append(
            "6. the copies of the log stay where they are: more of them, or a move, is a change of "
            "NATS itself, by hand and one at a time (docs/how-to/cluster-runbook.md)"
        )
    return steps
